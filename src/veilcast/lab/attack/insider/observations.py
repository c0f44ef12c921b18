"""Observations of a coalition about one topic in one run, as arrays; and the public knowledge about the network.

Most attackers need to know where floods begin. Where roots are elected this is public. Otherwise the coalition infers
it for each epoch: by chains, if adverts carry any (trilateration), or by the neighbour heard first (first spy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier
from veilcast.lab.attack.insider import advert_origin
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs, origin_distances
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.models.graph import Graph, restrict_graph
from veilcast.lab.models.link_observations import LinkObservations

Scores = NDArray[np.float64]
Classifiers: TypeAlias = Mapping[tuple[str, int], LinearClassifier | BinnedClassifier]
"""Classifiers by attack and number of epochs."""


@dataclass(frozen=True)
class PublicKnowledge:
    """Parameters of the network that every member knows, and the results of the coalition's own training."""

    acting: float = 0.1
    """Share of honest nodes that act as subscribers, covers included."""
    kept: bool = False
    """Whether nodes keep their parents, and relays their next hops."""
    onward: float = 0.5
    """Probability that a relay hands a stem on."""
    departures: int = 0
    """Number of epochs in which publishers release their notifications once; 0 for in every epoch."""
    hold: int = 0
    """Largest number of epochs for which roots hold a notification back."""
    relay_epochs: int = 0
    """Number of epochs after which a publisher changes its first relay; 0 for never."""
    waits: bool = False
    """Whether publishers wait for an absent first relay."""
    trained: Classifiers = field(default_factory=dict)


class HeardAdverts(NamedTuple):
    """The neighbour that sent each advert first; one row for each insider that heard it at that time."""

    epoch: NDArray[np.int64]
    message: NDArray[np.int64]
    peer: NDArray[np.int32]


class HeardChains(NamedTuple):
    """Chain value of each neighbour's first advert in an epoch."""

    epoch: NDArray[np.int64]
    peer: NDArray[np.int32]
    value: list[bytes]


@dataclass(frozen=True, eq=False)
class CoalitionObservations:
    """Epochs are numbers from 0 on."""

    graph: Graph
    """Overlay of all epochs together."""
    hostile: NDArray[np.bool_]
    """Mask of the coalition."""
    seen: LinkObservations
    passed: NDArray[np.int32]
    """Rows (epoch, observer, from, to, whether it came climbing), as in `publisher_evidence`."""
    adverts: HeardAdverts
    chains: HeardChains
    read: NDArray[np.integer]
    """Number of notifications that came, by epoch."""
    known: PublicKnowledge = PublicKnowledge()

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @property
    def epochs(self) -> int:
        return len(self.seen.present)

    @property
    def stages(self) -> list[tuple[int, int]]:
        """First epoch and end of the time of each first relay of a publisher."""
        length = self.known.relay_epochs or self.epochs
        return [(first, min(first + length, self.epochs)) for first in range(0, self.epochs, length)]

    @cached_property
    def distance(self) -> NDArray[np.int32]:
        """Epochs x nodes: hops from the origin of the flood."""
        return origin_distances(self.graph, self.seen)

    @cached_property
    def belief(self) -> Scores:
        """Log-odds of each node to subscribe, by the group tests."""
        tests = build_group_tests(self.graph, self.seen, kept=self.known.kept)
        return infer_beliefs(tests, self.nodes, self.known.acting)

    @cached_property
    def features(self) -> Scores:
        """Nodes x features for the trained attackers."""
        return extract_node_features(self.graph, self.seen, self.belief)

    @cached_property
    def chain_fits(self) -> list[Scores | None]:
        """By epoch, how well each node explains the chain values as the origin; None where none were heard."""
        return [score_chain_fit(self.overlay(epoch), self.chains, epoch) for epoch in range(self.epochs)]

    def overlay(self, epoch: int) -> Graph:
        """The links of the nodes that are present, and of the coalition; all links where nobody noted presence."""
        present = self.seen.present[epoch]
        return restrict_graph(self.graph, present | self.hostile) if present.any() else self.graph

    def first_epochs(self, epochs: int) -> CoalitionObservations:
        """The observations of the first epochs."""
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

    def passed_between(self, first: int, end: int) -> NDArray[np.int32]:
        """The rows of `passed` in these epochs, counted from `first`."""
        passed = self.passed[(self.passed[:, 0] >= first) & (self.passed[:, 0] < end)]
        return np.asarray(passed - np.array([first, 0, 0, 0, 0], np.int32), np.int32)


def infer_origins(graph: Graph, epochs: int, adverts: HeardAdverts, chains: HeardChains) -> NDArray[np.int32]:
    """The likeliest origin of the flood of each epoch; an epoch without adverts keeps the origin before."""
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


def score_chain_fit(graph: Graph, chains: HeardChains, epoch: int) -> Scores | None:
    """How well each node explains the chain values of an epoch; None where none were heard."""
    rows = np.flatnonzero(chains.epoch == epoch)
    if not len(rows):
        return None
    return advert_origin.score_trilateration(graph, chains.peer[rows], [chains.value[row] for row in rows])
