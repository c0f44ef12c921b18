"""The classifiers of a coalition, trained on networks of its own.

The coalition makes its training networks from the same parameters under seeds that no run has. So the classifiers
depend on the parameters alone, and a process keeps them. If the data say which users subscribe, training on them would
reveal the targets; there a training network draws as many subscribers at random.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier, fit_binned, fit_linear
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.attack.insider.observations import Classifiers
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.plan import SEEDS_MAX
from veilcast.lab.models.coalition_view import watch_epochs
from veilcast.lab.models.epochs import Population
from veilcast.lab.runs.mesh.epoch_setup import make_policy, settle_people
from veilcast.lab.runs.mesh.epoch_tables import acting_share

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrainedClassifiers:
    """Classifiers of subscribers for one number of epochs."""

    linear: LinearClassifier
    binned: BinnedClassifier


def train_coalition_classifiers(
    people: Population, params: MeshEpochs, attacks: Collection[str], data: Path | None
) -> Classifiers:
    """Classifiers for each step of the run, if any of these attacks is trained."""
    if "linear" not in attacks and "binned" not in attacks:
        return {}
    learned = _train_classifiers(_training_params(params, people), data)
    trained: dict[tuple[str, int], LinearClassifier | BinnedClassifier] = {}
    for step, each in learned.items():
        trained |= {("linear", step): each.linear, ("binned", step): each.binned}
    return trained


def training_mask(people: Population) -> NDArray[np.bool_]:
    """Mask of the nodes that classifiers learn from: all honest nodes except the publisher."""
    mask = ~people.insiders
    mask[people.publisher] = False
    return mask


def _training_params(params: MeshEpochs, people: Population) -> MeshEpochs:
    if not params.topic:
        return msgspec.structs.replace(params, attacks=())
    return msgspec.structs.replace(params, attacks=(), topic="", ratio=len(people.subscribers) / people.graph.nodes)


@lru_cache(maxsize=256)
def _train_classifiers(params: MeshEpochs, data: Path | None) -> dict[int, TrainedClassifiers]:
    """Classifiers by number of epochs."""
    steps = [int(step) for step in params.steps]
    rows: dict[int, list[Scores]] = {step: [] for step in steps}
    labels: list[NDArray[np.bool_]] = []
    while len(labels) < _NETWORKS and sum(map(len, labels)) < _ROWS:
        people = settle_people(params, SEEDS_MAX + len(labels), data)
        view, among = watch_epochs(people, make_policy(params), steps[-1]), training_mask(people)
        acting = acting_share(people, params.kappa)
        for step in steps:
            seen = view.first_epochs(step)
            tests = build_group_tests(people.graph, seen, kept=params.kappa > 0)
            belief = infer_beliefs(tests, people.graph.nodes, acting)
            rows[step].append(extract_node_features(people.graph, seen, belief)[among])
        subscribes = np.zeros(people.graph.nodes, np.bool_)
        subscribes[people.subscribers] = True
        labels.append(subscribes[among])
    known = np.concatenate(labels)
    return {
        step: TrainedClassifiers(fit_linear(np.vstack(rows[step]), known), fit_binned(np.vstack(rows[step]), known))
        for step in steps
    }


_NETWORKS: Final = 40
_ROWS: Final = 18_000
"""Training ends after `_NETWORKS` networks, or earlier with this number of rows."""
