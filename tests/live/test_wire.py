"""The measure of lateness, on cells whose lateness is known."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from tally import quantile

from wire import lateness_us

PERIOD_US = 62_500


def cells(late_us: list[int | None], start_us: int) -> array[int]:
    """A cell for each slot, so late; none where it is None."""
    return array("q", (start_us + n * PERIOD_US + late for n, late in enumerate(late_us) if late is not None))


@pytest.mark.parametrize("first", [0, 300, 40_000])
def test_lateness_is_found_whatever_the_phase_and_however_late_the_first_cell_is(first: int) -> None:
    rng = Random(1)
    late: list[int | None] = [first, *(rng.randrange(1_000) for _ in range(400))]
    found = lateness_us(cells(late, rng.randrange(10**15)), PERIOD_US)
    assert len(found) == 401
    assert all(abs(mine - (true or 0)) < 60 for mine, true in zip(found, late, strict=True))


def test_a_slot_without_a_cell_counts_as_a_period_late() -> None:
    late: list[int | None] = [100] * 50 + [None] * 3 + [100] * 50
    found = lateness_us(cells(late, 7), PERIOD_US)
    assert sorted(found)[-3:] == [PERIOD_US] * 3
    assert sorted(found)[-4] < 10


def test_late_cells_are_seen_as_late() -> None:
    late: list[int | None] = [0 if n % 10 else 20_000 for n in range(500)]
    found = lateness_us(cells(late, 123_456), PERIOD_US)
    assert sum(each > PERIOD_US / 4 for each in found) == 50
    assert (quantile(found, 0.5), quantile(found, 0.95)) == (0, 20_000)
    assert lateness_us(array("q"), PERIOD_US) == []
