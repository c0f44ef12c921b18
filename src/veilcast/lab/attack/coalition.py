"""What a coalition has of one topic in one run, as arrays, put together from what its members overheard.

Where floods begin must be known to most of its attackers. Where roots are elected everybody knows; else the coalition
works it out for each epoch: by chains, if adverts carry any (`trilateration`), or by whom it heard first (`first_spy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import first_spy, trilateration
from veilcast.lab.attack.pools import distances
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.sights import Sights


class Adverts(NamedTuple):
    """From whom each came first; a row for each member that had it so."""

    epoch: NDArray[np.int64]
    message: NDArray[np.int64]
    peer: NDArray[np.int32]


class Chains(NamedTuple):
    """With which value the first advert of an epoch came from a neighbour."""

    epoch: NDArray[np.int64]
    peer: NDArray[np.int32]
    value: list[bytes]


@dataclass(frozen=True, eq=False)
class Coalition:
    """Epochs are numbers from 0 on."""

    graph: Graph
    """The overlay of all epochs together."""
    enemy: NDArray[np.bool_]
    """By node, whether it is of the coalition."""
    seen: Sights
    passed: NDArray[np.int32]
    """Rows (epoch, observer, from whom, to whom, whether it came climbing), as `predecessor` has them."""
    adverts: Adverts
    chains: Chains
    read: NDArray[np.int64]
    """By epoch, how many notes came."""

    @property
    def epochs(self) -> int:
        return len(self.seen.present)

    @cached_property
    def distance(self) -> NDArray[np.int32]:
        """Epochs x nodes: from where the flood began."""
        return distances(self.graph, self.seen)

    def until(self, epochs: int) -> Coalition:
        """What it had after the first epochs."""
        heard = self.adverts.epoch < epochs
        adverts = Adverts(self.adverts.epoch[heard], self.adverts.message[heard], self.adverts.peer[heard])
        held = np.flatnonzero(self.chains.epoch < epochs)
        values = [self.chains.value[row] for row in held]
        return replace(
            self,
            seen=self.seen.until(epochs),
            passed=self.passed[self.passed[:, 0] < epochs],
            adverts=adverts,
            chains=Chains(self.chains.epoch[held], self.chains.peer[held], values),
            read=self.read[:epochs],
        )


def origins(graph: Graph, epochs: int, adverts: Adverts, chains: Chains) -> NDArray[np.int32]:
    """By epoch, where the flood seems to have begun; who heard nothing keeps to the epoch before."""
    found = np.zeros(epochs, np.int32)
    for epoch in range(epochs):
        scores = fits(graph, chains, epoch)
        if scores is None:
            here = adverts.epoch == epoch
            scores = first_spy.votes(adverts.message[here], adverts.peer[here], np.zeros(int(here.sum())), graph.nodes)
        found[epoch] = np.argmax(scores) if np.any(scores) else found[max(0, epoch - 1)]
    return found


def fits(graph: Graph, chains: Chains, epoch: int) -> NDArray[np.float64] | None:
    """By node, how well it explains the chain values of an epoch; nothing where there are none."""
    rows = np.flatnonzero(chains.epoch == epoch)
    if not len(rows):
        return None
    return trilateration.scores(graph, chains.peer[rows], [chains.value[row] for row in rows])
