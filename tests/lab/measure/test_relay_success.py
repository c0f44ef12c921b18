"""Success of a relay's attackers: everything for a perfect one, and the bounds of the definitions for a blind one."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.measure.relay_success import measure_links, measure_publications, measure_subscriptions, measure_users

RNG = np.random.default_rng(1)
READS = RNG.random((60, 5)) < np.array([0.5, 0.25, 0.2, 0.1, 0.1])
WRITES = RNG.random((60, 5)) < 0.1


def test_a_perfect_attacker_reaches_everything() -> None:
    said = measure_users(READS.astype(np.float64), READS)
    assert said["auc"] == said["topic_subscribers"] == 1.0
    # Who reads k topics is right for one of them.
    assert said["subscription"] == pytest.approx(READS.any(axis=1).sum() / READS.sum())
    assert measure_subscriptions(READS.astype(np.float64), READS)["named_readers"] == 1.0
    assert measure_links((WRITES.astype(int) @ READS.T.astype(int)).astype(np.float64), WRITES, READS)["auc"] == 1.0
    publishers = np.arange(20)
    assert measure_publications(np.eye(20, 60), publishers)["publisher"] == 1.0


def test_a_blind_attacker_reaches_the_bounds_of_the_definitions() -> None:
    said = measure_users(np.zeros((60, 5)), READS)
    assert said["auc"] == 0.5
    assert said["topic_subscribers"] == pytest.approx(said["topic_subscribers_bound"])
    assert said["subscription"] == pytest.approx(said["subscription_bound"])
    assert measure_publications(np.zeros((20, 60)), np.arange(20))["publisher"] == pytest.approx(1 / 60)
    assert measure_links(np.zeros((60, 60)), WRITES, READS)["auc"] == 0.5


def test_that_a_topic_is_popular_is_not_taken_for_a_success() -> None:
    """The planted fault is one AUC over all pairs."""
    popularity = np.broadcast_to(READS.mean(axis=0), READS.shape)
    assert measure_users(popularity, READS)["auc"] == 0.5


def test_without_publications_there_are_no_measures() -> None:
    assert measure_publications(np.zeros((0, 60)), np.zeros(0, np.int64)) == {}
