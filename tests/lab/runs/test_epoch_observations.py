"""A global observer over the epochs of a model run: positive and null controls, and silent wires."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.observations import EpochObservations
from veilcast.lab.attack.observer.attackers import find_certain_subscribers
from veilcast.lab.attack.registry import find_attacker
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.epochs import run_epochs
from veilcast.lab.runs.mesh.epoch_setup import (
    make_policy,
    observe_constant_wires,
    observe_wires,
    play_games,
    settle_people,
)

READERS = ("leaf", "majority", "persistence", "closure", "centrality", "intersection", "late-join", "survivor")
SOURCES = ("flow-source", "roots", "rumor")
SG = MeshEpochs(nodes=300, degree=6, churn=0.1, steps=(6,), games=4.0)
H = MeshEpochs(nodes=300, degree=6, churn=0.1, steps=(6,), kappa=0.7)


@cache
def watched(params: MeshEpochs, seed: int) -> tuple[EpochObservations, NDArray[np.bool_], int]:
    people, way = settle_people(params, seed, None), make_policy(params)
    found = EpochObservations(people.graph, len(people.subscribers), 0.0)
    for epoch in run_epochs(people, way, 6):
        seen = (
            observe_constant_wires(epoch)
            if params.kappa
            else observe_wires(people, epoch, play_games(people, epoch, way.games))
        )
        found.see(seen, closely=epoch.number == 0)
    return found, np.isin(np.arange(300), people.subscribers), people.publisher


def mean_auc(params: MeshEpochs, attack: str, *, shuffled: bool = False) -> float:
    values = []
    for seed in range(8):
        found, subscribes, _ = watched(params, seed)
        labels = np.random.default_rng(seed).permutation(subscribes) if shuffled else subscribes
        values.append(auc(find_attacker(attack, EpochObservations).score(found), labels))
    return float(np.mean(values))


@pytest.mark.parametrize("attack", READERS)
def test_six_epochs_of_the_shell_game_reveal_the_subscribers_and_shuffled_labels_do_not(attack: str) -> None:
    assert mean_auc(SG, attack) > 0.88
    assert mean_auc(SG, attack, shuffled=True) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("attack", READERS)
def test_silent_wires_reveal_no_subscribers(attack: str) -> None:
    assert mean_auc(H, attack) == pytest.approx(0.5, abs=0.06)


def suspects(found: EpochObservations, attack: str) -> NDArray[np.bool_]:
    """Mask of the nodes with the highest score."""
    scores = find_attacker(attack, EpochObservations).score(found)
    return np.asarray(scores == scores.max())


@pytest.mark.parametrize("attack", ["flow-source", "roots"])
def test_the_publisher_is_found_on_visible_wires_and_not_on_silent_ones(attack: str) -> None:
    for seed in range(4):
        found, _, publisher = watched(SG, seed)
        assert suspects(found, attack)[publisher]
        assert np.count_nonzero(suspects(found, attack)) <= 3
        assert np.count_nonzero(suspects(watched(H, seed)[0], attack)) > 100


def test_every_node_that_closure_is_certain_of_subscribes() -> None:
    for seed in range(8):
        found, subscribes, _ = watched(SG, seed)
        certain = find_certain_subscribers(found.meshes[-1])
        assert certain.any()
        assert subscribes[certain].all()


def test_slow_attackers_use_only_the_epochs_seen_closely() -> None:
    people, way = settle_people(SG, 1, None), make_policy(SG)
    once, twice = (EpochObservations(people.graph, 30, 0.0) for _ in range(2))
    for epoch in run_epochs(people, way, 3):
        once.see(observe_wires(people, epoch, None), closely=epoch.number == 0)
        if epoch.number == 0:
            twice.see(observe_wires(people, epoch, None))
    roots, leaf = (find_attacker(name, EpochObservations) for name in ("roots", "leaf"))
    assert (roots.score(once) == roots.score(twice)).all()
    assert (leaf.score(once) != leaf.score(twice)).any()
