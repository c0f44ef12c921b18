"""Rounds: an overlay with several topics, where copies of notes look alike, and who sees all wires counts them.

On the same overlay other topics are read by others, as many for each. Every epoch has some rounds, and in each of them
each topic has a note or not, as a coin says. What a node does in a round is how many copies it receives, of whatever
topic: links are encrypted, and no copy says what it is of. Whoever reads a topic, though, knows when it was busy. So
the observer holds what nodes did against when topics were busy: one at a time (`disclosure`), or all together
(`disclosure`). On silent wires every node receives as much in every round, busy or not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.observer import disclosure
from veilcast.lab.attack.observer.disclosure import RoundMoments
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.models.rng import stream

Scores = NDArray[np.float64]


class RoundCounts:
    """What both observers know after the epochs that they have been shown, in turn."""

    def __init__(self, people: Population, conduct: MeshPolicy, count: int) -> None:
        """`count` is how many epochs there will be."""
        self._people, self._silent = people, conduct.kappa > 0
        others = () if self._silent else (draw_other_topic(people, number) for number in range(1, _TOPICS))
        self._others = [run_epochs(other, conduct, count) for other in others]
        self._busy: list[NDArray[np.bool_]] = []
        self._activity: list[Scores] = []
        self._moments: RoundMoments | None = None

    def see(self, epoch: Epoch) -> None:
        """One more epoch of the topic that is sought, and of the others."""
        chance = np.random.default_rng(stream(self._people.seed, "rounds", epoch.number))
        busy = chance.random((_ROUNDS, _TOPICS)) < 0.5
        if self._silent:
            activity = np.tile(epoch.graph.degrees.astype(np.float64), (_ROUNDS, 1))
        else:
            activity = busy @ np.array([_received(each) for each in (epoch, *map(next, self._others))])
        self._busy.append(busy[:, 0])
        self._activity.append(activity)
        seen = disclosure.sum_moments(busy.astype(np.float64), activity)
        self._moments = seen if self._moments is None else self._moments + seen

    def score_by_means(self) -> Scores:
        """By node, how much more it does when the topic is busy."""
        return disclosure.score_disclosure(np.concatenate(self._busy), np.vstack(self._activity))

    def score_by_least_squares(self) -> Scores:
        """By node, how much of what it does comes of the topic; 0 before anything was seen."""
        if self._moments is None:
            return np.zeros(self._people.graph.nodes)
        # What is left of a constant by rounding orders nobody.
        return np.asarray(np.round(disclosure.solve_weights(self._moments)[0], _DIGITS), np.float64)


def draw_other_topic(people: Population, number: int) -> Population:
    """Another topic of the same people, with draws of its own."""
    share = len(people.subscribers) / people.graph.nodes
    publisher, readers = draw_roles(people.graph, share, int(stream(people.seed, "topic", number)[0]))
    honest = readers[~people.insiders[readers]]
    return replace(people, publisher=publisher, subscribers=honest, topic=number)


def _received(epoch: Epoch) -> Scores:
    """By node, whether a note of this mesh comes to it."""
    found = np.zeros(epoch.present.size)
    found[epoch.covered_mesh.members] = 1.0
    found[epoch.covered_mesh.publisher] = 0.0
    return found


_TOPICS: Final = 5
_ROUNDS: Final = 8
"""In an epoch."""
_DIGITS: Final = 6
