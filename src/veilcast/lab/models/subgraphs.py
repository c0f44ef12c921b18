"""Parts of an overlay that is too large to run: a neighbourhood of it, and fewer links for its hubs.

A ball is the set of nodes that a flood from a node reaches first. It is connected, and most of its nodes keep all their
neighbours, so that friends with equal interests stay side by side; a sample of single nodes would have hardly a link. A
node with more links than it can keep loses random ones, as a full node refuses newcomers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.mesh import hop_distances
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, shuffle, stream


def nearest_nodes(graph: Graph, centre: int, size: int) -> NDArray[np.int32]:
    """The nodes nearest to the centre, with the centre, in order: `size` of them, if it reaches as many."""
    others = hop_distances(graph, centre)[1]
    nearest = others[others != centre][: size - 1]
    return np.sort(np.append(nearest, np.int32(centre)))


def induce_subgraph(graph: Graph, nodes: NDArray[np.int32]) -> Graph:
    """The graph of these nodes alone, renumbered in their order."""
    number = np.full(graph.nodes, -1, np.int32)
    number[nodes] = np.arange(nodes.size, dtype=np.int32)
    u, v = (number[ends] for ends in graph.edges())
    inside = (u >= 0) & (v >= 0)
    return from_edges(nodes.size, u[inside], v[inside])


def limit_degrees(graph: Graph, most: int, seed: int) -> Graph:
    """Limit every node to `most` links: links are taken in random order while both ends have room."""
    if graph.degrees.max(initial=0) <= most:
        return graph
    u, v = graph.edges()
    kept = _kept(graph.nodes, u, v, most, stream(seed, "thinned"))
    return from_edges(graph.nodes, u[kept], v[kept])


@jit
def _kept(n: int, u: NDArray[np.int32], v: NDArray[np.int32], most: int, state: Stream) -> NDArray[np.bool_]:
    order = np.arange(len(u)).astype(np.int32)
    shuffle(state, order)
    links, kept = np.zeros(n, np.int32), np.zeros(len(u), np.bool_)
    for edge in order:
        if links[u[edge]] < most and links[v[edge]] < most:
            kept[edge] = True
            links[u[edge]] += 1
            links[v[edge]] += 1
    return kept
