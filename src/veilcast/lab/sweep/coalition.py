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

from veilcast.lab.attack import handed
from veilcast.lab.attack.classifiers import Binned, Linear, fit_binned, fit_linear
from veilcast.lab.attack.features import features
from veilcast.lab.attack.group_testing import beliefs
from veilcast.lab.attack.pools import distances, pooled
from veilcast.lab.kernels.epochs import Population
from veilcast.lab.kernels.insiders import View, watch
from veilcast.lab.kernels.sights import Sights
from veilcast.lab.sweep.params import Params
from veilcast.lab.sweep.plan import SEEDS_MAX
from veilcast.lab.sweep.worlds import conduct, settled

Scores = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trained:
    """To tell subscribers by what is seen in so many epochs."""

    linear: Linear
    binned: Binned


def suspected(people: Population, view: View, params: Params, epochs: int, data: Path | None) -> dict[str, Scores]:
    """By attack, and by node how much it looks like a subscriber, after so many epochs."""
    seen = view.until(epochs)
    belief = _belief(people, seen, params)
    found = {"group-testing": belief}
    if "handed" in params.attacks:
        found["handed"] = handed.scores(people.graph, seen, distances(people.graph, seen))
    if "linear" in params.attacks or "binned" in params.attacks:
        learned = _trained(_training(params, people), data)[epochs]
        observed = features(people.graph, seen, belief)
        found |= {"linear": learned.linear.scores(observed), "binned": learned.binned.scores(observed)}
    return {attack: scores for attack, scores in found.items() if attack in params.attacks}


def asked(people: Population) -> NDArray[np.bool_]:
    """Those who are judged: the honest, but for the publisher."""
    mask = ~people.insiders
    mask[people.publisher] = False
    return mask


def _belief(people: Population, seen: Sights, params: Params) -> Scores:
    """Insiders know how many subscribe, and how many act as if they did."""
    share = len(people.subscribers) / int(np.count_nonzero(~people.insiders))
    acting = share + (1 - share) * params.kappa
    tests = pooled(people.graph, seen, kept=params.kappa > 0)
    return beliefs(tests, people.graph.nodes, min(acting, _SURE))


def _training(params: Params, people: Population) -> Params:
    """What their worlds are made from."""
    if not params.topic:
        return msgspec.structs.replace(params, attacks=())
    return msgspec.structs.replace(params, attacks=(), topic="", ratio=len(people.subscribers) / people.graph.nodes)


@lru_cache(maxsize=256)
def _trained(params: Params, data: Path | None) -> dict[int, Trained]:
    """By the number of epochs."""
    steps = [int(step) for step in params.steps]
    rows: dict[int, list[Scores]] = {step: [] for step in steps}
    labels: list[NDArray[np.bool_]] = []
    while len(labels) < _WORLDS and sum(map(len, labels)) < _ROWS:
        people = settled(params, SEEDS_MAX + len(labels), data)
        view, among = watch(people, conduct(params), steps[-1]), asked(people)
        for step in steps:
            seen = view.until(step)
            rows[step].append(features(people.graph, seen, _belief(people, seen, params))[among])
        subscribes = np.zeros(people.graph.nodes, np.bool_)
        subscribes[people.subscribers] = True
        labels.append(subscribes[among])
    known = np.concatenate(labels)
    return {
        step: Trained(fit_linear(np.vstack(rows[step]), known), fit_binned(np.vstack(rows[step]), known))
        for step in steps
    }


_WORLDS: Final = 40
_ROWS: Final = 18_000
"""So many worlds, or fewer if they have as many nodes as this to learn from."""
_SURE: Final = 0.999
