from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.measure.attack_measures import (
    measure_probabilities,
    measure_publisher_attack,
    measure_subscriber_attack,
)

SUBSCRIBES = np.array([True, True, False, False, False, True])
ASKED = np.array([True, True, True, True, True, False])
NEAR = np.array([True, False, True, False, False, True])


def test_only_asked_nodes_count_and_neighbours_of_insiders_have_their_own_measure() -> None:
    found = measure_subscriber_attack(np.array([1.0, 4.0, 3.0, 2.0, 0.0, 9.0]), SUBSCRIBES, ASKED, NEAR, 1)
    assert found["base"] == pytest.approx(2 / 5)
    assert found["auc"] == pytest.approx(4 / 6)
    assert found["auc_near"] == 0
    assert (found["set_min"], found["set_mean"]) == (1, 2)


def test_with_one_kind_of_nodes_there_are_no_measures() -> None:
    scores = np.arange(6.0)
    assert measure_subscriber_attack(scores, np.zeros(6, np.bool_), ASKED, NEAR, 1) == {}
    assert "auc_near" not in measure_subscriber_attack(scores, SUBSCRIBES, ASKED, np.zeros(6, np.bool_), 1)


def test_a_perfect_attacker_has_all_the_bits_and_a_blind_one_none() -> None:
    rng = np.random.default_rng(1)
    subscribes, everybody = rng.random(1000) < 0.1, np.ones(1000, np.bool_)
    rate = subscribes.mean()
    entropy = -(rate * np.log2(rate) + (1 - rate) * np.log2(1 - rate))
    knowing = measure_subscriber_attack(subscribes.astype(float), subscribes, everybody, everybody, 1)
    assert knowing["bits"] == pytest.approx(entropy, abs=0.01)
    values = [measure_subscriber_attack(rng.random(1000), subscribes, everybody, everybody, seed) for seed in range(40)]
    assert np.mean([value["auc"] for value in values]) == pytest.approx(0.5, abs=0.015)
    assert np.mean([value["bits"] for value in values]) == pytest.approx(0, abs=0.002)


def test_equally_suspect_nodes_share_the_first_guess() -> None:
    scores, asked = np.array([2.0, 2.0, 1.0, 5.0, -np.inf]), np.array([True, True, True, False, True])
    assert measure_publisher_attack(scores, 0, asked) == {"success": 0.5, "rank": 1.5, "base": 0.25}
    assert measure_publisher_attack(scores, 2, asked) == {"success": 0.0, "rank": 3.0, "base": 0.25}
    assert measure_publisher_attack(np.zeros(5), 4, asked)["success"] == pytest.approx(
        measure_publisher_attack(scores, 4, asked)["base"]
    )


def test_a_posterior_sums_to_one_over_the_asked_nodes() -> None:
    found = measure_probabilities(np.array([0.1, 0.1, 0.1, 0.1, 0.0, 0.9]), ASKED)
    assert (found["entropy"], found["min_entropy"], found["possible"]) == pytest.approx((2, 2, 4))
