"""Adverts on their way: when insiders have the flood of an epoch, and from whom.

A node passes an advert on with its next heartbeat. If all beat together every link takes one period, and who is a hop
nearer is a period earlier. If each beats at moments of its own, a link takes any part of a period, and a way of more
hops may be the faster one: this blurs who was first, and nothing of what hash chains say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.keyed_draws import BEATS, rank_neighbours


def arrival_times(
    graph: Graph, origin: int, observer: NDArray[np.int32], peer: NDArray[np.int32], takes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """When each of these neighbours `peer` tells its `observer`, in periods after the flood began; infinite where there
    is no such link, or no flood comes. `takes` has a time for each of `graph.targets`."""
    links = csr_array((takes, graph.targets, graph.offsets), shape=(graph.nodes, graph.nodes))
    at = np.asarray(dijkstra(links, indices=origin), np.float64)
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int64), graph.degrees)
    # Rows are in order, and so are all pairs, each as one number; the last stands for those that are not there.
    pairs = np.append(ends * graph.nodes + graph.targets, -1)
    wanted = peer.astype(np.int64) * graph.nodes + observer
    slot = np.searchsorted(pairs[:-1], wanted)
    return np.where(pairs[slot] == wanted, at[peer] + np.append(takes, np.inf)[slot], np.inf)


def equal_delays(graph: Graph) -> NDArray[np.float64]:
    """What links take where all nodes beat at the same moments."""
    return np.ones(graph.targets.size)


def random_delays(graph: Graph, key: np.uint64) -> NDArray[np.float64]:
    """What they take where each beats at moments of its own: more than nothing, and one period at most."""
    return (rank_neighbours(graph, key, BEATS) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-53
