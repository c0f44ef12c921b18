from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from veilcast.lab.measure.privacy_loss import SHARES, epsilon_of_counts, epsilon_of_scores, lower_bound, upper_bound


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.001, 0.2))
def test_the_bounds_are_those_of_clopper_and_pearson(of: int, count: int, miss: float) -> None:
    count = min(count, of)
    low, high = lower_bound(count, of, miss), upper_bound(count, of, miss)
    assert 0 <= low <= count / of <= high <= 1
    if count:
        assert binom.sf(count - 1, of, low) == pytest.approx(miss, rel=1e-6)
    if count < of:
        assert binom.cdf(count, of, high) == pytest.approx(miss, rel=1e-6)


def test_many_counts_come_near_the_ratio_of_the_rates_and_never_above() -> None:
    found = epsilon_of_counts(90_000, 100_000, 30_000, 100_000)
    # Of the two inequalities the second one is the stronger: TNR / FNR is .7 / .1.
    assert log(7) - 0.05 < found < log(7)


def test_delta_takes_from_what_is_found() -> None:
    assert epsilon_of_counts(500, 1000, 10, 1000, delta=0.1) < epsilon_of_counts(500, 1000, 10, 1000)


def test_a_blind_test_refutes_no_epsilon() -> None:
    assert (
        epsilon_of_counts(0, 100, 0, 100)
        == epsilon_of_counts(100, 100, 100, 100)
        == epsilon_of_counts(10, 100, 10, 100)
        == 0
    )


def noise(miss: float, shares: int) -> float:
    """The share of draws of pure noise in which a loss is found."""
    rng = np.random.default_rng(3)
    levels = np.linspace(0.02, 0.5, shares)
    found = [
        epsilon_of_scores(rng.random(400), rng.random(400) < 0.3, miss=miss, shares=levels) > 0 for _ in range(300)
    ]
    return float(np.mean(found))


def test_scores_that_tell_nothing_have_no_loss_however_many_thresholds_are_tried() -> None:
    """The null control, and the planted fault: a share that is not divided finds loss where there is none."""
    assert noise(0.05, 30) <= 0.005
    assert noise(0.3 * 4 * 30, 30) > 0.5


def test_confident_hits_are_seen_though_most_nodes_hide() -> None:
    """The positive control: one in ten is given away, and nobody else; an AUC of .55 hides a large loss."""
    rng = np.random.default_rng(4)
    positive = rng.random(4000) < 0.3
    scores = rng.random(4000) + (positive & (rng.random(4000) < 0.1))
    assert epsilon_of_scores(scores, positive) > 2
    assert len(SHARES) == 6
