"""When insiders receive the advert flood of an epoch, and from which neighbours.

A node forwards an advert with its next heartbeat. If all nodes beat together, every link takes one period, and a node
one hop nearer is one period earlier. If each node beats at its own moments, a link takes any part of a period, and a
path of more hops can be the faster one. This blurs which neighbour was first. It changes nothing of what hash chains
say.
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
    """When each neighbour `peer` tells its `observer`, in periods after the flood began; infinite if there is no such
    link, or if no flood arrives. `takes` has a time for each of `graph.targets`."""
    links = csr_array((takes, graph.targets, graph.offsets), shape=(graph.nodes, graph.nodes))
    at = np.asarray(dijkstra(links, indices=origin), np.float64)
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int64), graph.degrees)
    # Rows are sorted, and so are all pairs, each as one number; the last entry stands for missing pairs.
    pairs = np.append(ends * graph.nodes + graph.targets, -1)
    wanted = peer.astype(np.int64) * graph.nodes + observer
    slot = np.searchsorted(pairs[:-1], wanted)
    return np.where(pairs[slot] == wanted, at[peer] + np.append(takes, np.inf)[slot], np.inf)


def equal_delays(graph: Graph) -> NDArray[np.float64]:
    """Delays of links if all nodes beat at the same moments."""
    return np.ones(graph.targets.size)


def random_delays(graph: Graph, key: np.uint64) -> NDArray[np.float64]:
    """Delays of links if each node beats at its own moments: above 0, and one period at most."""
    return (rank_neighbours(graph, key, BEATS) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-53
