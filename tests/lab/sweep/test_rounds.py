"""Observers who count copies of several topics: both controls, and what silence leaves of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.kernels.epochs import CONDUCTS, epochs
from veilcast.lab.measure.ranking import auc
from veilcast.lab.sweep.params import Params
from veilcast.lab.sweep.rounds import Rounds, another
from veilcast.lab.sweep.worlds import settled

TOWN = Params(nodes=200, degree=6, churn=0.1, insiders=0.05, look="epochs", steps=(12,))
Scores = NDArray[np.float64]


@cache
def counted(conduct: str, seed: int, count: int) -> tuple[Scores, Scores, NDArray[np.bool_]]:
    people = settled(TOWN, seed, None)
    rounds = Rounds(people, CONDUCTS[conduct], count)
    for epoch in epochs(people, CONDUCTS[conduct], count):
        rounds.see(epoch)
    return rounds.by_means(), rounds.by_least_squares(), np.isin(np.arange(200), people.subscribers)


def means(conduct: str, count: int, *, shuffled: bool = False) -> list[float]:
    """The AUC of both."""
    values = []
    for seed in range(6):
        *scores, labels = counted(conduct, seed, count)
        if shuffled:
            labels = np.random.default_rng(seed).permutation(labels)
        values.append([auc(each, labels) for each in scores])
    return [float(value) for value in np.mean(values, axis=0)]


def test_readers_do_more_when_their_topic_is_busy_and_are_told_the_better_the_longer_one_counts() -> None:
    early, late = means("BL", 1), means("BL", 12)
    assert min(early) > 0.7
    assert min(late) > 0.93
    assert all(before < after for before, after in zip(early, late, strict=True))


def test_who_explains_all_topics_together_is_misled_less() -> None:
    by_means, by_least_squares = means("BL", 12)
    assert by_least_squares > by_means - 0.01


def test_shuffled_labels_are_not_found() -> None:
    assert means("BL", 12, shuffled=True) == pytest.approx([0.5, 0.5], abs=0.07)


def test_on_silent_wires_there_is_nothing_to_count() -> None:
    assert means("H", 12) == pytest.approx([0.5, 0.5], abs=0.03)


def test_before_anything_was_seen_nobody_is_suspect() -> None:
    people = settled(TOWN, 1, None)
    assert not Rounds(people, CONDUCTS["BL"], 1).by_least_squares().any()


def test_topics_share_who_is_away_and_neither_ways_nor_covers() -> None:
    people = replace(settled(TOWN, 1, None), publisher=0)
    first, second = (
        next(epochs(replace(topic, publisher=0), CONDUCTS["PF fresh"], 1)) for topic in (people, another(people, 1))
    )
    assert (first.present == second.present).all()
    shared = (first.found.parent == second.found.parent)[first.found.distance > 0]
    assert 0.2 < shared.mean() < 0.95
