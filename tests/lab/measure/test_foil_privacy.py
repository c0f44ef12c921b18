"""P3's measures on sets that were counted by hand, and the strongest of attackers that only guess."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.measure.foil_privacy import (
    composite_entropy,
    estimate_overhead,
    indistinguishability,
    likeliest_candidates,
    trusted_candidates,
    truth_deviation,
    value_known,
)
from veilcast.lab.measure.strongest_attacker import block_interval, find_strongest

POSTERIOR = np.array([[[0.5, 0.2, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.4, 0.4, 0.1, 0.1]]])
CANDIDATES = np.array([[[1.0, 2.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 7.0, 9.0]]])
POSITION = np.array([[0, 1, 1]])


def test_measures_are_those_of_the_set_that_is_named() -> None:
    best = likeliest_candidates(POSTERIOR)
    assert best.sum(axis=2).tolist() == [[1, 4, 2]]
    assert indistinguishability(best, POSITION).tolist() == [[1, 0.25, 0.5]]
    assert value_known(best, CANDIDATES, POSITION).tolist() == [[1, 0.25, 1]]
    assert truth_deviation(best, CANDIDATES, POSITION).tolist() == [[0, 1, 0]]


def test_a_share_of_belief_is_the_smallest_set_that_holds_it() -> None:
    assert trusted_candidates(POSTERIOR, 0.6).sum(axis=2).tolist() == [[2, 3, 2]]
    assert trusted_candidates(POSTERIOR, 1.0).sum(axis=2).tolist() == [[4, 4, 4]]
    assert indistinguishability(trusted_candidates(POSTERIOR, 0.6), POSITION) == pytest.approx(
        np.array([[0.5, 1 / 3, 0.5]])
    )
    with pytest.raises(ConfigError):
        trusted_candidates(POSTERIOR, 0)


def test_the_entropy_of_a_composite_is_at_most_that_of_an_even_one() -> None:
    assert composite_entropy(np.arange(8.0).reshape(1, 2, 4), 8) == pytest.approx(3)
    assert composite_entropy(np.zeros((1, 2, 4)), 8) == 0
    assert composite_entropy(np.array([[[0.0, 1.0, 1.0, 1.0]]]), 8) == pytest.approx(0.8113, abs=1e-4)


def test_foiling_pays_with_fakes_and_encryption_with_unwanted_deliveries() -> None:
    """Ten subscribers of an attribute, each with a twentieth of its domain."""
    cost = estimate_overhead(subscribers=10, wanted=0.05, fake_wanted=0.05, k_p=3, k_s=0)
    assert cost.events == 4
    assert cost.subscriptions == 1
    assert cost.plain == pytest.approx(0.5)
    assert cost.foiled == pytest.approx(2)
    assert cost.encrypted == 10
    double = estimate_overhead(subscribers=10, wanted=0.05, fake_wanted=0.05, k_p=3, k_s=1)
    assert double.foiled == pytest.approx(4)
    with pytest.raises(ConfigError):
        estimate_overhead(subscribers=1, wanted=2, fake_wanted=0, k_p=0, k_s=0)


def test_the_luckiest_of_many_guessing_attackers_is_not_called_strong() -> None:
    rng = np.random.default_rng(1)
    plain, corrected = [], []
    for trial in range(60):
        hits = {str(name): (rng.random(400) < 0.1).astype(np.float64) for name in range(20)}
        found = find_strongest(hits, 10, trial, draws=10)
        plain.append(found.largest.value)
        corrected.append(found.corrected)
    assert np.mean(plain) > 0.12, "the plain largest is too large"
    assert np.mean(corrected) == pytest.approx(0.1, abs=0.006)


def test_an_attacker_that_is_right_more_often_is_found() -> None:
    rng = np.random.default_rng(2)
    hits = {name: (rng.random(2000) < p).astype(np.float64) for name, p in (("a", 0.1), ("b", 0.3), ("c", 0.1))}
    found = find_strongest(hits, 20, 1)
    assert found.name == "b"
    assert found.largest.holds(0.3)
    assert found.corrected == pytest.approx(found.largest.value, abs=0.03)


def test_blocks_of_neighbours_that_are_alike_make_intervals_wider() -> None:
    """Each value comes twenty times: there are as many as a twentieth, and the interval says so."""
    values = np.repeat(np.random.default_rng(3).standard_normal(200), 20)
    narrow, wide = block_interval(values, 1, 1), block_interval(values, 40, 1)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert wide.high - wide.low == pytest.approx(2 * 1.96 / np.sqrt(200), rel=0.2)
    for block in (0, 5000):
        with pytest.raises(ConfigError):
            block_interval(values, block, 1)


def test_incomparable_results_are_refused() -> None:
    for hits in ({}, {"a": np.zeros(0)}, {"a": np.full(3, np.nan)}):
        with pytest.raises(ConfigError):
            find_strongest(hits, 1, 1)
    with pytest.raises(ConfigError, match="1 to 3"):
        find_strongest({"a": np.zeros(3)}, 4, 1)
