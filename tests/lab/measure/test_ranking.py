from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.measure.accuracy import RunTruth
from veilcast.lab.measure.ranking import (
    auc,
    auc_by_chance,
    auc_interval,
    measure_candidates,
    precision_at,
    true_positives_at,
)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=60))
def test_auc_is_the_share_of_pairs_in_the_right_order(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([float(score) for score, _ in pairs])
    positive = np.array([label for _, label in pairs])
    if positive.all() or not positive.any():
        assert auc(scores, positive) == 0.5
    else:
        order = [(high > low) + (high == low) / 2 for high in scores[positive] for low in scores[~positive]]
        assert auc(scores, positive) == pytest.approx(np.mean(order))


def test_chance_has_the_spread_that_is_said() -> None:
    rng = np.random.default_rng(1)
    low, high = auc_by_chance(50, 450)
    positive = np.arange(500) < 50
    values = [auc(rng.random(500), positive) for _ in range(1000)]
    assert np.mean([low <= value <= high for value in values]) == pytest.approx(0.95, abs=0.02)


def test_hits_without_false_alarms_count_at_any_rate_of_them() -> None:
    scores = np.array([4.0, 3.0, 2.0, 1.0, 0.0])
    positive = np.array([True, True, False, True, False])
    assert true_positives_at(scores, positive, 0.0) == pytest.approx(2 / 3)
    assert true_positives_at(scores, positive, 0.5) == pytest.approx(1.0)


def test_between_thresholds_the_tied_are_named_at_random() -> None:
    scores = np.array([1.0, 1.0, 1.0, 1.0])
    positive = np.array([True, False, True, False])
    assert true_positives_at(scores, positive, 0.01) == pytest.approx(0.01)
    assert precision_at(scores, positive, 2) == pytest.approx(0.5)


def test_the_highest_are_named_first() -> None:
    scores = np.array([3.0, 2.0, 2.0, 1.0])
    positive = np.array([True, True, False, False])
    assert precision_at(scores, positive, 1) == 1
    assert precision_at(scores, positive, 2) == pytest.approx(0.75)


def test_the_publisher_is_not_asked_about() -> None:
    truth = RunTruth(0, np.array([False, True, False]))
    found = measure_candidates(truth, np.array([9.0, 1.0, 0.0]))
    assert found["auc"] == found["tpr_1"] == found["tpr_0_1"] == 1


def test_with_one_kind_of_nodes_there_is_nothing_to_rank() -> None:
    assert measure_candidates(RunTruth(0, np.array([False, True, True])), np.zeros(3)) == {}


@pytest.mark.parametrize(("first", "second"), [(5, 18), (50, 450)])
def test_the_interval_of_one_auc_holds_the_truth_in_95_of_100_networks(first: int, second: int) -> None:
    """Scores of two normal distributions, one moved by as much as gives this AUC."""
    rng, held = np.random.default_rng(first), 0
    positive = np.arange(first + second) < first
    for _ in range(400):
        found = auc(rng.normal(1.0 * positive), positive)
        low, high = auc_interval(found, first, second)
        assert low <= found <= high
        held += low <= 0.7602 <= high
    assert held / 400 > 0.92


def test_a_perfect_order_of_few_nodes_is_no_certainty() -> None:
    low, high = auc_interval(1.0, 5, 18)
    assert (round(low, 2), high) == (0.76, 1.0)
    assert auc_interval(0.0, 5, 18) == pytest.approx((0.0, 1 - low))
    assert auc_interval(1.0, 5, 18, miss=0.005)[0] < low
