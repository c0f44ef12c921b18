"""Populations with the view of a coalition, for the tests of insiders' attackers; and the null control."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.lab.measure.ranking import auc, auc_by_chance
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs
from veilcast.lab.models.epochs import MESH_POLICIES, MeshPolicy, Population


@dataclass(frozen=True, eq=False)
class CoalitionCase:
    """A population, the view of its insiders, and the roles."""

    people: Population
    view: CoalitionView
    candidates: NDArray[np.bool_]
    subscribes: NDArray[np.bool_]

    def auc(self, scores: NDArray[np.float64]) -> float:
        return auc(scores[self.candidates], self.subscribes[self.candidates])

    def labels(self) -> NDArray[np.bool_]:
        return self.subscribes[self.candidates]


def make_case(conduct: MeshPolicy | str, seed: int, epochs: int, nodes: int = 500, degree: int = 8) -> CoalitionCase:
    """A tenth of the nodes are insiders, a tenth subscribe, and a tenth of the others are absent in each epoch."""
    people = make_population(nodes, degree, 0.1, 0.1, seed)
    candidates, subscribes = ~people.insiders, np.zeros(nodes, np.bool_)
    candidates[people.publisher], subscribes[people.subscribers] = False, True
    seen = watch_epochs(people, MESH_POLICIES[conduct] if isinstance(conduct, str) else conduct, epochs)
    return CoalitionCase(people, seen, candidates, subscribes)


def tells_nothing_of_shuffled_labels(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> bool:
    """The null control: over permutations the AUC is that of chance, and 0.5 on average."""
    rng = np.random.default_rng(11)
    values = np.array([auc(scores, rng.permutation(labels)) for _ in range(400)])
    low, high = auc_by_chance(int(np.count_nonzero(labels)), int(np.count_nonzero(~labels)))
    within = float(np.mean((values >= low) & (values <= high)))
    return within >= 0.93 and bool(abs(values.mean() - 0.5) <= 3 * values.std() / len(values) ** 0.5)
