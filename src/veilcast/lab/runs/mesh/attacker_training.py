"""Insiders against subscribers: what a coalition makes of what it saw in the first epochs of a run.

Group testing needs no training. The classifiers are trained on worlds of the coalition's own, made from the same
parameters under seeds that no run has: what is learned depends on the parameters alone, and is kept in a process. Where
the data say who subscribes, their subscribers would be the ones that are sought; there a training world draws as many
at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier, fit_binned, fit_linear
from veilcast.lab.attack.insider import swap_handover
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs, origin_distances
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.experiment.params import Params
from veilcast.lab.experiment.plan import SEEDS_MAX
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs
from veilcast.lab.models.epochs import Population
from veilcast.lab.models.link_observations import LinkObservations
from veilcast.lab.runs.mesh.epoch_setup import make_policy, settle_people

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainedClassifiers:
    """To tell subscribers by what is seen in so many epochs."""

    linear: LinearClassifier
    binned: BinnedClassifier


def score_suspects(
    people: Population, view: CoalitionView, params: Params, epochs: int, data: Path | None
) -> dict[str, Scores]:
    """By attack, and by node how much it looks like a subscriber, after so many epochs."""
    seen = view.first_epochs(epochs)
    belief = _belief(people, seen, params)
    found = {"group-testing": belief}
    if "handed" in params.attacks:
        found["handed"] = swap_handover.score_handover(people.graph, seen, origin_distances(people.graph, seen))
    if "linear" in params.attacks or "binned" in params.attacks:
        learned = _train_classifiers(_training(params, people), data)[epochs]
        observed = extract_node_features(people.graph, seen, belief)
        found |= {"linear": learned.linear.scores(observed), "binned": learned.binned.scores(observed)}
    return {attack: scores for attack, scores in found.items() if attack in params.attacks}


def judged_nodes(people: Population) -> NDArray[np.bool_]:
    """Those who are judged: the honest, but for the publisher."""
    mask = ~people.insiders
    mask[people.publisher] = False
    return mask


def _belief(people: Population, seen: LinkObservations, params: Params) -> Scores:
    """Insiders know how many subscribe, and how many act as if they did."""
    share = len(people.subscribers) / int(np.count_nonzero(~people.insiders))
    acting = share + (1 - share) * params.kappa
    tests = build_group_tests(people.graph, seen, kept=params.kappa > 0)
    return infer_beliefs(tests, people.graph.nodes, min(acting, _SURE))


def _training(params: Params, people: Population) -> Params:
    """What their worlds are made from."""
    if not params.topic:
        return msgspec.structs.replace(params, attacks=())
    return msgspec.structs.replace(params, attacks=(), topic="", ratio=len(people.subscribers) / people.graph.nodes)


@lru_cache(maxsize=256)
def _train_classifiers(params: Params, data: Path | None) -> dict[int, TrainedClassifiers]:
    """By the number of epochs."""
    steps = [int(step) for step in params.steps]
    rows: dict[int, list[Scores]] = {step: [] for step in steps}
    labels: list[NDArray[np.bool_]] = []
    while len(labels) < _WORLDS and sum(map(len, labels)) < _ROWS:
        people = settle_people(params, SEEDS_MAX + len(labels), data)
        view, among = watch_epochs(people, make_policy(params), steps[-1]), judged_nodes(people)
        for step in steps:
            seen = view.first_epochs(step)
            rows[step].append(extract_node_features(people.graph, seen, _belief(people, seen, params))[among])
        subscribes = np.zeros(people.graph.nodes, np.bool_)
        subscribes[people.subscribers] = True
        labels.append(subscribes[among])
    known = np.concatenate(labels)
    return {
        step: TrainedClassifiers(fit_linear(np.vstack(rows[step]), known), fit_binned(np.vstack(rows[step]), known))
        for step in steps
    }


_WORLDS: Final = 40
_ROWS: Final = 18_000
"""So many worlds, or fewer if they have as many nodes as this to learn from."""
_SURE: Final = 0.999
