"""Users on brokers: by Zipf's law, at the same place wherever they are looked up, and matrices that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models.user_placement import UserPlacement, zipf_weights


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_users_live_by_zipfs_law(alpha: float) -> None:
    homes = UserPlacement.by_zipf(400, alpha, 3).brokers_of(np.arange(400_000, dtype=np.int32))
    expected = zipf_weights(400, alpha) * homes.size
    found = np.bincount(homes, minlength=400)
    common = expected > 5
    distance = ((found - expected)[common] ** 2 / expected[common]).sum()
    # Chi-squared: its mean is the number of terms, its deviation the root of twice that.
    assert distance < common.sum() + 5 * (2 * common.sum()) ** 0.5


def test_the_guide_finds_what_searching_finds() -> None:
    placement = UserPlacement.by_zipf(37, 0.8, 1)
    at = np.random.default_rng(0).random(1000)
    start = placement.guide[(at * placement.guide.size).astype(int)]
    found = np.searchsorted(placement.below, at, side="right")
    assert (start <= found).all()
    assert (found < 37).all()


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=60), st.integers(0, 60))
def test_a_matrix_counts_pairs_of_homes_and_parts_add_up(pairs: list[tuple[int, int]], cut: int) -> None:
    ends = np.array(pairs, np.int32).reshape(-1, 2)
    placement = UserPlacement.by_zipf(5, 1.0, 2)
    homes = placement.brokers_of(np.arange(100, dtype=np.int32))
    whole = placement.matrix(ends[:, 0].copy(), ends[:, 1].copy())
    expected = np.zeros((5, 5), int)
    for publisher, subscriber in pairs:
        expected[homes[publisher], homes[subscriber]] += 1
    assert np.array_equal(whole, expected)
    parts = [placement.matrix(part[:, 0].copy(), part[:, 1].copy()) for part in (ends[:cut], ends[cut:])]
    assert np.array_equal(parts[0] + parts[1], whole)


def test_where_users_live_depends_on_the_seed_and_not_on_whom_else_one_asks_about() -> None:
    users = np.arange(1000, dtype=np.int32)
    one = UserPlacement.by_zipf(400, 0.5, 1)
    assert np.array_equal(one.brokers_of(users)[500:], one.brokers_of(users[500:]))
    assert not np.array_equal(one.brokers_of(users), UserPlacement.by_zipf(400, 0.5, 2).brokers_of(users))


def test_laws_that_are_none_are_refused() -> None:
    for ranks, alpha in ((0, 1.0), (5, -0.1), (5, 51.0)):
        with pytest.raises(ConfigError):
            zipf_weights(ranks, alpha)
    with pytest.raises(ConfigError, match="a publisher and a subscriber"):
        UserPlacement.by_zipf(5, 1, 0).matrix(np.zeros(2, np.int32), np.zeros(1, np.int32))
