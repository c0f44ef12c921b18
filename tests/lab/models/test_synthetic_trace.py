"""Synthetic traces: exact totals, the same in any parts, skewed as the real trace is, and among friends only."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab import data
from veilcast.lab.models.synthetic_trace import TraceLaw

LAW = TraceLaw(3_000, 28_300, 1_400, 5)
MORE = TraceLaw(20_000, 190_000, 150_000, 5)
EVERYBODY = LAW.part(0, 1)


def rows(columns: tuple[np.ndarray, ...]) -> Counter[tuple[float, ...]]:
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def top(counts: np.ndarray, share: float) -> float:
    """What the first such share of all who have any have of everything."""
    ordered = np.sort(counts[counts > 0])[::-1]
    return float(ordered[: round(ordered.size * share)].sum() / ordered.sum())


@pytest.mark.parametrize("parts", [2, 3, 7, 40])
def test_parts_put_together_are_the_trace(parts: int) -> None:
    made = [LAW.interactions_of(LAW.part(number, parts)) for number in range(parts)]
    assert sum(map(rows, made), Counter()) == rows(LAW.interactions_of(EVERYBODY))
    known = [LAW.relations_of(LAW.part(number, parts)) for number in range(parts)]
    assert sum(map(rows, known), Counter()) == rows(LAW.relations_of(EVERYBODY))


@given(st.integers(2, 500), st.integers(0, 10_000), st.integers(3, 20))
@settings(max_examples=25)
def test_totals_are_exact(users: int, interactions: int, density: int) -> None:
    law = TraceLaw(users, users * density, interactions)
    assert law.relations_of(law.part(0, 1)).user.size == users * density
    assert law.interactions_of(law.part(0, 1)).publisher.size == interactions


def test_people_speak_to_friends_in_the_order_of_time_and_nobody_to_oneself() -> None:
    said, known = LAW.interactions_of(EVERYBODY), LAW.relations_of(EVERYBODY)
    assert set(zip(said.publisher.tolist(), said.subscriber.tolist(), strict=True)) <= set(
        zip(known.user.tolist(), known.friend.tolist(), strict=True)
    )
    assert not (known.user == known.friend).any()
    assert known.friend.min() >= 0
    assert known.friend.max() < LAW.users
    order = np.lexsort((said.hour, said.publisher))
    assert np.array_equal(order, np.arange(order.size))
    assert 0 <= said.hour.min() <= said.hour.max() < LAW.hours


def test_everybody_knows_somebody_and_few_speak_in_a_month() -> None:
    known = np.bincount(LAW.relations_of(EVERYBODY).user, minlength=LAW.users)
    assert known.min() >= 1
    assert np.unique(MORE.interactions_of(MORE.part(0, 1)).publisher).size == pytest.approx(0.09 * 20_000, rel=0.02)


def test_how_skewed_things_are_is_as_stated() -> None:
    everybody = MORE.part(0, 1)
    assert top(np.bincount(MORE.relations_of(everybody).user), 0.1) == pytest.approx(0.1**0.55, abs=0.01)
    assert top(np.bincount(MORE.interactions_of(everybody).publisher), 0.1) == pytest.approx(0.1**0.4, abs=0.02)


def test_another_seed_is_another_trace() -> None:
    other = msgspec.structs.replace(LAW, seed=6)
    assert rows(other.interactions_of(EVERYBODY)) != rows(LAW.interactions_of(EVERYBODY))


@pytest.mark.skipif("VEILCAST_DATA" not in os.environ, reason="needs the data folder")
def test_the_skews_are_about_those_of_new_orleans() -> None:
    trace = data.load_trace("facebook", Path(os.environ["VEILCAST_DATA"]))
    pairs = np.unique(np.stack([trace.publisher, trace.subscriber]), axis=1)
    month = trace.hour < 730
    for real, skew in ((pairs[0], 0.45), (trace.publisher[month], 0.6)):
        for share in (0.1, 0.2):
            assert top(np.bincount(real), share) == pytest.approx(share ** (1 - skew), abs=0.06)


@pytest.mark.parametrize(
    ("users", "relations", "interactions"), [(1, 10, 1), (100, 100, 1), (100, 1_000, -1), (100, 2**49, 1)]
)
def test_traces_that_cannot_be_are_refused(users: int, relations: int, interactions: int) -> None:
    with pytest.raises(ConfigError):
        TraceLaw(users, relations, interactions)
    with pytest.raises(ConfigError, match="parts"):
        LAW.part(3, 3)
