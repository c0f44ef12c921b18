"""A mesh at the pace of heartbeats: who tells first, and who is asked when. As the machines lay it, and cover it.

Machines say what they have to say at their next beat, and beat in phases of their own. That shows in two places where
the plain kernels, for which all of it takes no time, draw by chance. Of equally near neighbours a node follows the
first to tell; who hears early is early with all of its neighbours, these follow it together, and so meshes are the
smaller, the more neighbours nodes have. And a node that looks for a cover asks one neighbour after the other, a beat or
two for each that declines, while covers that were found look for theirs: so those with many neighbours in the mesh come
late and find nobody outside, and meshes grow a little less than where each chooses in its turn. P0's own numbers fit
the plain kernels at least as well; these here are for holding kernels and machines against one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.chance import Stream, shuffle, stream, unit
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.graph import Graph
from veilcast.lab.kernels.mesh import Mesh, distances


@dataclass(frozen=True, eq=False)
class Laid:
    """A mesh; when everybody beats, between 0 and 1; and when everybody joined, in heartbeats, infinite if never."""

    mesh: Mesh
    phase: NDArray[np.float64]
    joined: NDArray[np.float64]


def laid(graph: Graph, publisher: int, subscribers: NDArray[np.int32], seed: int) -> Laid:
    """Subscribers whom no advert reaches stay outside."""
    distance, order = distances(graph, publisher)
    state = stream(seed, "beats")
    phase, heard, first = _told(graph.offsets, graph.targets, order, distance, state)
    parent, joined = _joined(publisher, subscribers, order, phase, heard, first, state)
    return Laid(Mesh(publisher, parent, distance), phase, joined)


def covered(graph: Graph, laid: Laid, mu: float, seed: int) -> Mesh:
    """The mesh with one cover at most for each node, covers too, who are asked one after the other."""
    mesh = laid.mesh
    parent = _asked(
        graph.offsets, graph.targets, mesh.publisher, mesh.parent, laid.phase, laid.joined, mu, stream(seed, "asked")
    )
    return Mesh(mesh.publisher, parent, mesh.distance)


@compiled
def _told(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    order: NDArray[np.int32],
    distance: NDArray[np.int32],
    state: Stream,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """When everybody beats and hears of the publisher, and the first of the nearer neighbours to tell."""
    n = len(distance)
    phase, heard, first = np.empty(n), np.full(n, np.inf), np.full(n, -1, np.int32)
    for v in range(n):
        phase[v] = unit(state)
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


@compiled
def _joined(
    publisher: int,
    subscribers: NDArray[np.int32],
    order: NDArray[np.int32],
    phase: NDArray[np.float64],
    heard: NDArray[np.float64],
    first: NDArray[np.int32],
    state: Stream,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Subscribers join when they hear, others when they are asked to pass on; all by whom they heard of it first."""
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


@compiled
def _asked(
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
    lists = targets.copy()  # Each row in the order in which its node asks.
    turns = [(0.0, 0)]
    turns.clear()
    for v in range(len(parent)):
        shuffle(state, lists[offsets[v] : offsets[v + 1]])
        if parent[v] >= 0 and v != publisher and unit(state) < mu:
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
                if unit(state) < mu:
                    heappush(turns, (_beat(phase[w], arrives), w))
            else:
                heappush(turns, (_beat(phase[v], _beat(phase[w], arrives) + _latency(state)), v))
            break
    return parent


@compiled
def _beat(phase: float, time: float) -> float:
    """The first beat from this time on."""
    return float(phase + np.ceil(time - phase))


@compiled
def _latency(state: Stream) -> float:
    return float(SHORTEST + (LONGEST - SHORTEST) * unit(state))


SHORTEST: Final = 0.01
LONGEST: Final = 0.1
"""Of links, in heartbeats: as in the simulator, where machines are held against kernels."""
