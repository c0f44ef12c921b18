from __future__ import annotations

from random import Random

import numpy as np
import pytest

from support.ring_traffic import BEAT_US, columns, heartbeats, record_ring
from veilcast.lab.attack.observer.publication_waves import estimate_heartbeat_us


@pytest.mark.parametrize("loaded", [0.0, 0.3])
def test_a_heartbeat_is_found_to_a_thousandth_among_notes_and_acknowledgements(loaded: float) -> None:
    cells, _ = record_ring(1, 20, loaded=loaded)
    assert estimate_heartbeat_us(*columns(cells)) == pytest.approx(BEAT_US, rel=0.001)


def test_a_heartbeat_is_found_with_a_tenth_of_the_cells_lost() -> None:
    rng = Random(3)
    cells = [cell for cell in heartbeats(rng, 60) if rng.random() < 0.9]
    assert estimate_heartbeat_us(*columns(cells)) == pytest.approx(BEAT_US, rel=0.001)


def test_bursts_count_once() -> None:
    cells = heartbeats(Random(4), 20)
    t_us, src, dst, size = columns(cells)
    again = np.tile(t_us, 3) + np.repeat([0, 5, 11], len(t_us))
    found = estimate_heartbeat_us(again, *(np.tile(column, 3) for column in (src, dst, size)))
    assert found == pytest.approx(BEAT_US, rel=0.001)


def test_without_anything_periodic_there_is_no_heartbeat() -> None:
    nothing = np.empty(0, np.int64)
    assert estimate_heartbeat_us(nothing, nothing.astype(np.int32), nothing.astype(np.int32), nothing) is None
    assert estimate_heartbeat_us(*columns(heartbeats(Random(5), 1)[:1])) is None
