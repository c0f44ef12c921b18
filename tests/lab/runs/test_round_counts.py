"""Observers that count copies of several topics: positive and null controls, and silent wires."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import find_attacker
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.epochs import MESH_POLICIES, run_epochs
from veilcast.lab.runs.mesh.epoch_setup import settle_people
from veilcast.lab.runs.mesh.round_counts import RoundCounts, draw_other_topic

TOWN = MeshEpochs(nodes=200, degree=6, churn=0.1, insiders=0.05, steps=(12,))
Scores = NDArray[np.float64]


@cache
def counted(conduct: str, seed: int, count: int) -> tuple[Scores, Scores, NDArray[np.bool_]]:
    people = settle_people(TOWN, seed, None)
    rounds = RoundCounts(people, MESH_POLICIES[conduct], count)
    seen = EpochObservations(people.graph, len(people.subscribers), 0.0)
    for epoch in run_epochs(people, MESH_POLICIES[conduct], count):
        seen.count_rounds(*rounds.draw(epoch))
    by_means, by_least_squares = (
        find_attacker(name, EpochObservations).score_topics(seen)[0] for name in ("disclosure", "least-squares")
    )
    return by_means, by_least_squares, np.isin(np.arange(200), people.subscribers)


def means(conduct: str, count: int, *, shuffled: bool = False) -> list[float]:
    """AUC of the difference of means and of least squares."""
    values = []
    for seed in range(6):
        *scores, labels = counted(conduct, seed, count)
        if shuffled:
            labels = np.random.default_rng(seed).permutation(labels)
        values.append([auc(each, labels) for each in scores])
    return [float(value) for value in np.mean(values, axis=0)]


def test_subscribers_are_busier_with_their_topic_and_more_epochs_reveal_more_of_them() -> None:
    early, late = means("BL", 1), means("BL", 12)
    assert min(early) > 0.7
    assert min(late) > 0.93
    assert all(before < after for before, after in zip(early, late, strict=True))


def test_explaining_all_topics_together_does_no_worse_than_one_at_a_time() -> None:
    by_means, by_least_squares = means("BL", 12)
    assert by_least_squares > by_means - 0.01


def test_shuffled_labels_are_not_found() -> None:
    assert means("BL", 12, shuffled=True) == pytest.approx([0.5, 0.5], abs=0.07)


def test_on_silent_wires_there_is_nothing_to_count() -> None:
    assert means("H", 12) == pytest.approx([0.5, 0.5], abs=0.03)


def test_without_any_round_no_node_is_suspect() -> None:
    people = settle_people(TOWN, 1, None)
    seen = EpochObservations(people.graph, len(people.subscribers), 0.0)
    assert not find_attacker("least-squares", EpochObservations).score(seen).any()


def test_topics_share_absences_but_neither_paths_nor_covers() -> None:
    people = replace(settle_people(TOWN, 1, None), publisher=0)
    first, second = (
        next(run_epochs(replace(topic, publisher=0), MESH_POLICIES["PF fresh"], 1))
        for topic in (people, draw_other_topic(people, 1))
    )
    assert (first.present == second.present).all()
    shared = (first.root_paths.parent == second.root_paths.parent)[first.root_paths.distance > 0]
    assert 0.2 < shared.mean() < 0.95
