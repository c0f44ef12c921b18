"""Parts of an overlay, where all of it is more than can be run: a neighbourhood of it, and fewer links for its hubs.

A ball is whom a flood reaches first from some node: it hangs together, and most of its nodes keep all their neighbours,
so that friends who read alike stay side by side; a sample of nodes drawn one by one would have hardly a link. A node
that has more links than it can keep loses some by chance, as one that is full refuses newcomers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.mesh import hop_distances
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, shuffle, stream


def nearest_nodes(graph: Graph, centre: int, size: int) -> NDArray[np.int32]:
    """The nodes that are nearest to the centre, itself among them, in order: `size` of them, if it reaches as many."""
    others = hop_distances(graph, centre)[1]
    nearest = others[others != centre][: size - 1]
    return np.sort(np.append(nearest, np.int32(centre)))


def induce_subgraph(graph: Graph, nodes: NDArray[np.int32]) -> Graph:
    """Of these nodes alone, who are numbered anew in their order."""
    number = np.full(graph.nodes, -1, np.int32)
    number[nodes] = np.arange(nodes.size, dtype=np.int32)
    u, v = (number[ends] for ends in graph.edges())
    inside = (u >= 0) & (v >= 0)
    return from_edges(nodes.size, u[inside], v[inside])


def limit_degrees(graph: Graph, most: int, seed: int) -> Graph:
    """With at most so many links for each node: links are taken in random order, as long as both ends have room."""
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
