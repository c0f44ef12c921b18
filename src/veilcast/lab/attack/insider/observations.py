"""What a coalition has of one topic in one run, as arrays, put together from what its members overheard.

Where floods begin must be known to most of its attackers. Where roots are elected everybody knows; else the coalition
works it out for each epoch: by chains, if adverts carry any (`advert_origin`), or by whom it heard first
(`advert_origin`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.insider import advert_origin
from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import LinkObservations


class HeardAdverts(NamedTuple):
    """From whom each came first; a row for each member that had it so."""

    epoch: NDArray[np.int64]
    message: NDArray[np.int64]
    peer: NDArray[np.int32]


class HeardChains(NamedTuple):
    """With which value the first advert of an epoch came from a neighbour."""

    epoch: NDArray[np.int64]
    peer: NDArray[np.int32]
    value: list[bytes]


@dataclass(frozen=True, eq=False)
class CoalitionObservations:
    """Epochs are numbers from 0 on."""

    graph: Graph
    """The overlay of all epochs together."""
    hostile: NDArray[np.bool_]
    """By node, whether it is of the coalition."""
    seen: LinkObservations
    passed: NDArray[np.int32]
    """Rows (epoch, observer, from whom, to whom, whether it came climbing), as `predecessor` has them."""
    adverts: HeardAdverts
    chains: HeardChains
    read: NDArray[np.int64]
    """By epoch, how many notes came."""

    @property
    def epochs(self) -> int:
        return len(self.seen.present)

    @cached_property
    def distance(self) -> NDArray[np.int32]:
        """Epochs x nodes: from where the flood began."""
        return origin_distances(self.graph, self.seen)

    def first_epochs(self, epochs: int) -> CoalitionObservations:
        """What it had after the first epochs."""
        heard = self.adverts.epoch < epochs
        adverts = HeardAdverts(self.adverts.epoch[heard], self.adverts.message[heard], self.adverts.peer[heard])
        held = np.flatnonzero(self.chains.epoch < epochs)
        values = [self.chains.value[row] for row in held]
        return replace(
            self,
            seen=self.seen.first_epochs(epochs),
            passed=self.passed[self.passed[:, 0] < epochs],
            adverts=adverts,
            chains=HeardChains(self.chains.epoch[held], self.chains.peer[held], values),
            read=self.read[:epochs],
        )


def infer_origins(graph: Graph, epochs: int, adverts: HeardAdverts, chains: HeardChains) -> NDArray[np.int32]:
    """By epoch, where the flood seems to have begun; who heard nothing keeps to the epoch before."""
    found = np.zeros(epochs, np.int32)
    for epoch in range(epochs):
        scores = score_chain_fit(graph, chains, epoch)
        if scores is None:
            here = adverts.epoch == epoch
            scores = advert_origin.score_first_spy(
                adverts.message[here], adverts.peer[here], np.zeros(int(here.sum())), graph.nodes
            )
        found[epoch] = np.argmax(scores) if np.any(scores) else found[max(0, epoch - 1)]
    return found


def score_chain_fit(graph: Graph, chains: HeardChains, epoch: int) -> NDArray[np.float64] | None:
    """By node, how well it explains the chain values of an epoch; nothing where there are none."""
    rows = np.flatnonzero(chains.epoch == epoch)
    if not len(rows):
        return None
    return advert_origin.score_trilateration(graph, chains.peer[rows], [chains.value[row] for row in rows])
