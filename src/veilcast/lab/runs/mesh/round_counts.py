"""Rounds of an overlay with several topics, in which an observer of all wires counts copies of notifications.

On the same overlay other topics have as many subscribers each. Every epoch has some rounds, and in each round each
topic has a notification with probability one half. The activity of a node in a round is the number of copies that it
receives, of whatever topic: links are encrypted, and no copy tells its topic. A subscriber of a topic, though, knows
when it was busy. So the observer compares activity with busy rounds, by one topic at a time or by all together
(`attack.observer.disclosure`). On silent wires every node receives the same in every round, busy or not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.models.rng import stream

Scores = NDArray[np.float64]


class RoundCounts:
    """The rounds of a run, epoch by epoch."""

    def __init__(self, people: Population, conduct: MeshPolicy, count: int) -> None:
        """`count` is the number of epochs of the run."""
        self._people, self._silent = people, conduct.kappa > 0
        others = () if self._silent else (draw_other_topic(people, number) for number in range(1, TOPICS))
        self._others = [run_epochs(other, conduct, count) for other in others]

    def draw(self, epoch: Epoch) -> tuple[NDArray[np.bool_], Scores]:
        """The rounds of the next epoch: rounds x topics, whether the topic is busy; and rounds x nodes, the copies."""
        rng = np.random.default_rng(stream(self._people.seed, "rounds", epoch.number))
        busy = rng.random((ROUNDS, TOPICS)) < 0.5
        if self._silent:
            return busy, np.tile(epoch.graph.degrees.astype(np.float64), (ROUNDS, 1))
        return busy, busy @ np.array([_receives(each) for each in (epoch, *map(next, self._others))])


def draw_other_topic(people: Population, number: int) -> Population:
    """Another topic of the same population, with its own draws."""
    share = len(people.subscribers) / people.graph.nodes
    publisher, readers = draw_roles(people.graph, share, int(stream(people.seed, "topic", number)[0]))
    honest = readers[~people.insiders[readers]]
    return replace(people, publisher=publisher, subscribers=honest, topic=number)


def _receives(epoch: Epoch) -> Scores:
    """1 for every node that receives a notification of this mesh."""
    found = np.zeros(epoch.present.size)
    found[epoch.covered_mesh.members] = 1.0
    found[epoch.covered_mesh.publisher] = 0.0
    return found


TOPICS: Final = 5
ROUNDS: Final = 8
"""Rounds in an epoch."""
