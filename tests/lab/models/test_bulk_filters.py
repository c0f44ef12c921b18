"""Filters in bulk: nothing that matches is missed, and what is let through wrongly stays within the bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.models import bulk_filters
from veilcast.lab.models.bulk_filters import fill_filters, match_filters
from veilcast.topics.bloom import Geometry

SHAPE = Geometry.sized(elements=4, queries=3, bound=0.01)
TAGS = st.integers(0, 50)


@given(
    st.lists(st.sets(TAGS, min_size=1, max_size=4), min_size=1, max_size=150),
    st.lists(st.lists(TAGS, min_size=3, max_size=3), max_size=20),
)
def test_every_filter_that_holds_a_tag_of_a_publication_is_found(
    subscribed: list[set[int]], published: list[list[int]]
) -> None:
    offsets = np.cumsum([0, *map(len, subscribed)])
    tags = np.array([tag for one in subscribed for tag in sorted(one)], np.int64)
    asked = np.array(sorted(published), np.int64).reshape(-1, 3)
    pairs = {
        *zip(*(side.tolist() for side in match_filters(fill_filters(tags, offsets, SHAPE), asked, SHAPE)), strict=True)
    }
    for row, wanted in enumerate(asked.tolist()):
        for column, held in enumerate(subscribed):
            if held & set(wanted):
                assert (row, column) in pairs
        # Who begins alike shares what was found: nothing may stay from the one before.
        alone = match_filters(fill_filters(tags, offsets, SHAPE), np.array([wanted]), SHAPE)[1]
        assert {column for found, column in pairs if found == row} == set(alone.tolist())


def test_the_bound_holds() -> None:
    rng = np.random.default_rng(1)
    tags = rng.integers(1 << 62, size=4 * 5_000)
    bits = fill_filters(tags, np.arange(0, tags.size + 1, 4), SHAPE)
    wrong = len(match_filters(bits, rng.integers(1 << 62, size=(400, 3)), SHAPE)[0])
    assert 0 < wrong < SHAPE.bound * 400 * 5_000


def test_more_matches_than_were_expected_are_all_there() -> None:
    bits = fill_filters(np.zeros(3_000, np.int64), np.arange(3_001), SHAPE)
    publication, column = match_filters(bits, np.zeros((2, 1), np.int64), SHAPE)
    assert publication.tolist() == [0] * 3_000 + [1] * 3_000
    assert column.tolist() == [*range(3_000)] * 2


def test_tiles_and_parts_leave_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than a tile has, and more publications than are looked up at once."""
    rng = np.random.default_rng(2)
    held, asked = rng.integers(5_000, size=20_000), np.sort(rng.integers(5_000, size=(300, 2)), axis=0)
    shape = Geometry.sized(elements=1, queries=2, bound=1e-9)
    bits = fill_filters(held, np.arange(held.size + 1), shape)
    right = [(row, column) for row, tags in enumerate(asked) for column in np.flatnonzero(np.isin(held, tags)).tolist()]
    for at_once in (7, 300):
        monkeypatch.setattr(bulk_filters, "_AT_ONCE", at_once)
        assert [*zip(*(side.tolist() for side in match_filters(bits, asked, shape)), strict=True)] == right
