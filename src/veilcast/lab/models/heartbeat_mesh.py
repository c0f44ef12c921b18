"""A mesh at the pace of heartbeats, as the machines lay it and cover it.

Machines send messages at their next heartbeat, and each beats in its own phase. The plain models take no time, and draw
at random instead. That makes a difference in two places.

1. A node follows the first of its equally near neighbours to tell it. A node that hears early is early with all of its
   neighbours, and they all follow it. So meshes are smaller, the more neighbours nodes have.
2. A node that looks for a cover asks one neighbour after the other, a beat or two for each refusal, while found covers
   look for theirs. Nodes with many neighbours in the mesh come late and find none outside. So meshes grow a little less
   than with turns in random order.

P0's own numbers fit the plain models at least as well. These models are for comparison with the machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.mesh import MeshTree, hop_distances
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_unit, shuffle, stream


@dataclass(frozen=True, eq=False)
class TimedMesh:
    """A mesh; the phase of each node's heartbeat, between 0 and 1; and when each node joined, in heartbeats, infinite
    if never."""

    mesh: MeshTree
    phase: NDArray[np.float64]
    join_time: NDArray[np.float64]


def lay_mesh(graph: Graph, publisher: int, subscribers: NDArray[np.int32], seed: int) -> TimedMesh:
    """Subscribers that no advert reaches stay outside."""
    distance, order = hop_distances(graph, publisher)
    state = stream(seed, "beats")
    phase, heard, first = _flood_adverts(graph.offsets, graph.targets, order, distance, state)
    parent, joined = _join(publisher, subscribers, order, phase, heard, first, state)
    return TimedMesh(MeshTree(publisher, parent, distance), phase, joined)


def recruit_covers(graph: Graph, laid: TimedMesh, mu: float, seed: int) -> MeshTree:
    """The mesh with at most one cover for each node, covers included. Neighbours are asked one after the other."""
    mesh = laid.mesh
    parent = _ask_neighbours(
        graph.offsets, graph.targets, mesh.publisher, mesh.parent, laid.phase, laid.join_time, mu, stream(seed, "asked")
    )
    return MeshTree(mesh.publisher, parent, mesh.distance)


@jit
def _flood_adverts(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    order: NDArray[np.int32],
    distance: NDArray[np.int32],
    state: Stream,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """When each node beats and hears of the publisher, and the first of its nearer neighbours to tell it."""
    n = len(distance)
    phase, heard, first = np.empty(n), np.full(n, np.inf), np.full(n, -1, np.int32)
    for v in range(n):
        phase[v] = draw_unit(state)
    for v in order:
        if distance[v] == 0:
            heard[v] = 0.0
        for at in range(offsets[v], offsets[v + 1]):
            u = targets[at]
            if distance[u] == distance[v] - 1:
                arrives = _beat(phase[u], heard[u]) + _latency(state)
                if arrives < heard[v]:
                    heard[v], first[v] = arrives, u
    return phase, heard, first


@jit
def _join(
    publisher: int,
    subscribers: NDArray[np.int32],
    order: NDArray[np.int32],
    phase: NDArray[np.float64],
    heard: NDArray[np.float64],
    first: NDArray[np.int32],
    state: Stream,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Subscribers join when they hear, others when they are asked to forward; all by the neighbour that they heard
    first."""
    n = len(first)
    parent, joined = np.full(n, -1, np.int32), np.full(n, np.inf)
    parent[publisher] = publisher
    for v in subscribers:
        joined[v] = heard[v]
    for at in range(len(order) - 1, 0, -1):
        v = order[at]
        if joined[v] < np.inf:
            parent[v] = first[v]
            joined[first[v]] = min(joined[first[v]], _beat(phase[v], joined[v]) + _latency(state))
    return parent, joined


@jit
def _ask_neighbours(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    publisher: int,
    before: NDArray[np.int32],
    phase: NDArray[np.float64],
    joined: NDArray[np.float64],
    mu: float,
    state: Stream,
) -> NDArray[np.int32]:
    parent, asked = before.copy(), np.zeros(len(before), np.int64)
    lists = targets.copy()  # Each row in the order of its node's questions.
    turns = [(0.0, 0)]
    turns.clear()
    for v in range(len(parent)):
        shuffle(state, lists[offsets[v] : offsets[v + 1]])
        if parent[v] >= 0 and v != publisher and draw_unit(state) < mu:
            heappush(turns, (_beat(phase[v], joined[v]), v))
    while len(turns) > 0:
        now, v = heappop(turns)
        while asked[v] < offsets[v + 1] - offsets[v]:
            w: int = np.int64(lists[offsets[v] + asked[v]])  # type: ignore[assignment]
            asked[v] += 1
            if parent[v] == w or parent[w] == v:
                continue
            arrives = now + _latency(state)
            if parent[w] < 0:
                parent[w] = v
                if draw_unit(state) < mu:
                    heappush(turns, (_beat(phase[w], arrives), w))
            else:
                heappush(turns, (_beat(phase[v], _beat(phase[w], arrives) + _latency(state)), v))
            break
    return parent


@jit
def _beat(phase: float, time: float) -> float:
    """The first heartbeat from this time on."""
    return float(phase + np.ceil(time - phase))


@jit
def _latency(state: Stream) -> float:
    return float(LATENCY_MIN + (LATENCY_MAX - LATENCY_MIN) * draw_unit(state))


LATENCY_MIN: Final = 0.01
LATENCY_MAX: Final = 0.1
"""Latencies of links, in heartbeats: as in the simulator, where machines are compared with models."""
