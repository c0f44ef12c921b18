"""Several topics on one overlay, and what their tokens show to insiders without keys.

Nodes read each topic by its popularity, or as a table says. Each topic has its own publisher among the nodes that do
not read it, and its own mesh, laid again in every epoch. Insiders, and the nodes that are away, are the same for all
topics. On a link to an honest neighbour an insider sees which tokens are asked for; it counts the notifications of the
meshes that it is part of. Each topic has its own rate of notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs
from veilcast.lab.models.epochs import MeshPolicy, Population
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import SILENT
from veilcast.lab.models.rng import stream


@dataclass(frozen=True, eq=False)
class TopicMix:
    """The nodes of a graph, and the topics that they read. The truth: no attacker receives it."""

    topics: tuple[Population, ...]
    """Populations on the same graph, with the same insiders, in the same epochs."""
    rates: NDArray[np.float64]
    """Mean notifications of each topic in an epoch."""

    @property
    def reads(self) -> NDArray[np.bool_]:
        """Nodes x topics."""
        mask = np.zeros((self.topics[0].graph.nodes, len(self.topics)), np.bool_)
        for number, people in enumerate(self.topics):
            mask[people.subscribers, number] = True
        return mask


@dataclass(frozen=True, eq=False)
class TokenObservations:
    """The coalition's observations of each token, in the order of topics, which no attacker may use."""

    views: tuple[CoalitionView, ...]
    """A view of each topic: E epochs on the same L links."""
    notes: NDArray[np.int64]
    """E x topics: number of notifications that reached any insider; -1 if no insider is in the mesh."""

    @property
    def noticed(self) -> NDArray[np.bool_]:
        """E x topics x L: whether a message with the token passed, other than the advert."""
        return np.stack([view.seen > SILENT for view in self.views], axis=1)

    @property
    def origin(self) -> NDArray[np.int32]:
        """E x topics: the origin of the flood."""
        return np.stack([view.origin for view in self.views], axis=1)


def zipf_popularity(topics: int, most: float) -> NDArray[np.float64]:
    """Popularity that falls with the rank: a share `most` of all nodes reads the first topic."""
    return most / np.arange(1, topics + 1)


def settle_topics(
    graph: Graph, readers: Sequence[NDArray[np.int32]], insiders: float, churn: float, notes: float, seed: int
) -> TopicMix:
    """`readers` are those of each topic; insiders among them are left out. `notes` is the mean of an epoch and a
    topic."""
    rng = np.random.default_rng(stream(seed, "town"))
    hostile = np.zeros(graph.nodes, np.bool_)
    hostile[rng.permutation(graph.nodes)[: round(insiders * graph.nodes)]] = True
    topics = []
    for number, those in enumerate(readers, start=1):
        free = ~hostile
        free[those] = False
        if not free.any():
            raise ConfigError(f"everybody reads topic {number}, and nobody is left to publish")
        publisher = int(rng.choice(np.flatnonzero(free)))
        topics.append(Population(graph, publisher, those[~hostile[those]], hostile, churn, seed, topic=number))
    return TopicMix(tuple(topics), notes * rng.exponential(size=len(topics)))


def draw_readers(graph: Graph, popularity: NDArray[np.float64], seed: int) -> list[NDArray[np.int32]]:
    """The readers of each topic: every node reads it with this probability, independently."""
    rng = np.random.default_rng(stream(seed, "readers"))
    return [np.flatnonzero(rng.random(graph.nodes) < share).astype(np.int32) for share in popularity]


def observe_tokens(town: TopicMix, conduct: MeshPolicy, count: int) -> TokenObservations:
    """The observations of the insiders in the first `count` epochs."""
    views = tuple(watch_epochs(people, conduct, count) for people in town.topics)
    notes = np.empty((count, len(views)), np.int64)
    for topic, view in enumerate(views):
        rng = np.random.default_rng(stream(town.topics[topic].seed, "notes", topic))
        part = (view.seen > SILENT).any(axis=1)
        notes[:, topic] = np.where(part, rng.poisson(town.rates[topic], count), -1)
    return TokenObservations(views, notes)
