"""The mesh of one topic as adverts and subscriptions lay it (P0 4.2): a tree of shortest paths to the publisher.

Adverts flood the overlay, and hash chains show every node which neighbours are one hop nearer. A subscription goes from
neighbour to nearer neighbour until it meets the mesh; the nodes on its path are forwarders. Of several equally near
neighbours a node follows the first to tell it. That depends on the phases of heartbeats (`heartbeat_mesh` models them),
so a random choice is the usual model ("uniform"). If all links are equally long and nodes beat in the order of their
numbers, it is the first in order ("first").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, stream


@dataclass(frozen=True, eq=False)
class MeshTree:
    """A tree on some of an overlay's nodes, V_a."""

    publisher: int
    parent: NDArray[np.int32]
    """The parent of every node of the overlay, -1 outside the mesh. The publisher is its own parent."""
    distance: NDArray[np.int32]
    """Hops from the publisher, in the overlay; -1 for nodes that no advert reaches."""

    @cached_property
    def members(self) -> NDArray[np.int32]:
        """V_a in order, with the publisher."""
        return np.flatnonzero(self.parent >= 0).astype(np.int32)

    @cached_property
    def children(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows as in a graph: offsets, and the children of each node in order."""
        return _child_rows(self.publisher, self.parent)

    def links(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The flow of one publication: sources and destinations."""
        members = self.members[self.members != self.publisher]
        return self.parent[members], members


def draw_roles(graph: Graph, ratio: float, seed: int) -> tuple[int, NDArray[np.int32]]:
    """The publisher, and the subscribers in order: round(ratio n) of the others."""
    if not 0 <= ratio <= 1:
        raise ConfigError(f"ratio must be a share between 0 and 1, not {ratio}")
    readers = min(round(ratio * graph.nodes), graph.nodes - 1)
    drawn = _draw_numbers(graph.nodes, readers + 1, stream(seed, "cast"))
    return int(drawn[0]), np.sort(drawn[1:])


def build_mesh(
    graph: Graph,
    publisher: int,
    subscribers: NDArray[np.int32],
    seed: int,
    ties: Literal["uniform", "first"] = "uniform",
) -> MeshTree:
    """Subscribers that no advert reaches stay outside."""
    distance, _ = hop_distances(graph, publisher)
    chance = stream(seed, "ties")
    parent = _climb(graph.offsets, graph.targets, publisher, subscribers, distance, ties == "first", chance)
    return MeshTree(publisher, parent, distance)


def hop_distances(graph: Graph, publisher: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The distance of every node in hops, -1 if it cannot be reached; and the reached nodes, the nearest first."""
    return _flood(graph.offsets, graph.targets, publisher)


@jit
def _draw_numbers(n: int, count: int, state: Stream) -> NDArray[np.int32]:
    """`count` different numbers below n, in random order: the beginning of a shuffle."""
    numbers = np.arange(n).astype(np.int32)
    for at in range(count):
        other = at + draw_below(state, n - at)
        numbers[at], numbers[other] = numbers[other], numbers[at]
    return numbers[:count].copy()


@jit
def _flood(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], publisher: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The distance of every node; and the reached nodes, the nearer first."""
    n = len(offsets) - 1
    distance, queue = np.full(n, -1, np.int32), np.empty(n, np.int32)
    queue[0], distance[publisher], head, tail = publisher, 0, 0, 1
    while head < tail:
        u = queue[head]
        head += 1
        for at in range(offsets[u], offsets[u + 1]):
            v = targets[at]
            if distance[v] < 0:
                distance[v] = distance[u] + 1
                queue[tail] = v
                tail += 1
    return distance, queue[:tail]


@jit
def _climb(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    publisher: int,
    subscribers: NDArray[np.int32],
    distance: NDArray[np.int32],
    take_first: bool,
    state: Stream,
) -> NDArray[np.int32]:
    parent = np.full(len(distance), -1, np.int32)
    parent[publisher] = publisher
    for subscriber in subscribers:
        v = subscriber
        while distance[v] >= 0 and parent[v] < 0:
            nearer = 0
            for at in range(offsets[v], offsets[v + 1]):
                u = targets[at]
                if distance[u] == distance[v] - 1:
                    nearer += 1
                    if nearer == 1 or (not take_first and draw_below(state, nearer) == 0):
                        parent[v] = u
            v = parent[v]
    return parent


@jit
def _child_rows(publisher: int, parent: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    n = len(parent)
    offsets = np.zeros(n + 1, np.int64)
    for v in range(n):
        if parent[v] >= 0 and v != publisher:
            offsets[parent[v] + 1] += 1
    for v in range(n):
        offsets[v + 1] += offsets[v]
    fill, children = offsets[:-1].copy(), np.empty(offsets[n], np.int32)
    for v in range(n):
        if parent[v] >= 0 and v != publisher:
            children[fill[parent[v]]] = v
            fill[parent[v]] += 1
    return offsets, children
