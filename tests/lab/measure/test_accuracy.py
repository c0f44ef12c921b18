from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.measure.accuracy import RunTruth, measure_guess, measure_mesh

TRUTH = RunTruth(0, np.array([False, True, True, False, False, True]))
"""Node 0 publishes; 1, 2 and 5 subscribe, and 5 is not reached."""
MEMBERS = np.array([True, True, True, True, False, False])


def test_the_mesh_counts_without_the_publisher_and_all_nodes_with_it() -> None:
    found = measure_guess(TRUTH, MEMBERS, np.array([False, True, False, True, False, False]))
    assert found["accuracy_mesh"] == pytest.approx(1 / 3)
    assert found["accuracy_all"] == pytest.approx(3 / 6)
    assert found["leaf_precision"] == pytest.approx(1 / 2)


def test_the_opposite_of_an_answer_is_right_where_that_is_wrong() -> None:
    found = measure_guess(TRUTH, MEMBERS, np.array([False, True, False, True, False, False]))
    assert found["inverted_mesh"] == pytest.approx(1 - found["accuracy_mesh"])
    assert found["inverted_all"] == pytest.approx(1 - found["accuracy_all"])


def test_baselines_follow_from_the_base_rate() -> None:
    found = measure_mesh(TRUTH, MEMBERS)
    assert found["share"] == pytest.approx(2 / 3)
    assert found["reached"] == pytest.approx(2 / 3)
    assert found["overlay"] == 4
    assert found["all_negative_mesh"] == pytest.approx(1 / 3)
    assert found["all_negative_all"] == pytest.approx(1 / 2)
    assert found["prior_mesh"] == pytest.approx((2 / 3) ** 2 + (1 / 3) ** 2)


def test_naming_nobody_is_the_all_negative_baseline_and_has_no_precision() -> None:
    nobody = np.zeros(6, dtype=np.bool_)
    found, network = measure_guess(TRUTH, MEMBERS, nobody), measure_mesh(TRUTH, MEMBERS)
    assert found["accuracy_mesh"] == pytest.approx(network["all_negative_mesh"])
    assert found["accuracy_all"] == pytest.approx(network["all_negative_all"])
    assert "leaf_precision" not in found


def test_naming_at_random_with_the_right_frequency_reaches_the_prior_baseline() -> None:
    rng = np.random.default_rng(1)
    rate = np.mean(TRUTH.subscribes)
    named = rng.random((20_000, 6)) < rate
    assert np.mean(named == TRUTH.subscribes) == pytest.approx(measure_mesh(TRUTH, MEMBERS)["prior_all"], abs=0.005)


def test_a_mesh_of_the_publisher_alone_has_no_measures_over_it() -> None:
    alone = np.arange(6) == 0
    assert "accuracy_mesh" not in measure_guess(TRUTH, alone, np.zeros(6, dtype=np.bool_))
    assert "share" not in measure_mesh(TRUTH, alone)
    assert measure_mesh(TRUTH, alone)["reached"] == 0
