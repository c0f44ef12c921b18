"""Rumor centrality: of all who have a note at one moment, who is in the middle of them?

An observer that comes late sees only who has it, not who had it first. If it spreads over a tree and every link is as
likely to be next, the chance that it began at v is proportional to the number of orders in which it may have reached
the others from there (Shah and Zaman 2011):

    R(v) = n! / product over all u of T(u, v)

where T(u, v) is how many are below u if v is the root. Where links form circles, the tree of shortest ways from v
stands for them. On a tree that grows faster than a line this finds the source with a probability that does not vanish,
and less than a half where every node has the same degree. Where hops take equal times those who have it are a ball, and
the Jordan centre, from which the farthest is nearest, is the better guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.hops import hops
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.graph import Graph, from_edges

Mask = NDArray[np.bool_]


def scores(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """By node, the probability that it began there; those who have it are connected."""
    tried = np.flatnonzero(infected).astype(np.int32)
    found = np.zeros(graph.nodes)
    if len(tried):
        within = _among(graph, infected)
        found[tried] = softmax(-_log_sizes(within.offsets, within.targets, tried))
    return found


def jordan(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """By node, how near the farthest of those who have it is: 1 / (1 + hops), and 0 of who does not have it."""
    tried = np.flatnonzero(infected).astype(np.int32)
    found = np.zeros(graph.nodes)
    if len(tried):
        found[tried] = 1 / (1 + hops(_among(graph, infected), tried).max(axis=1))
    return found


def _among(graph: Graph, infected: Mask) -> Graph:
    u, v = graph.edges()
    inside = infected[u] & infected[v]
    return from_edges(graph.nodes, u[inside], v[inside])


@compiled
def _log_sizes(offsets: NDArray[np.int64], targets: NDArray[np.int32], roots: NDArray[np.int32]) -> NDArray[np.float64]:
    """For each root, the sum of the logarithms of what hangs on each node of its tree of shortest ways."""
    nodes = len(offsets) - 1
    sums = np.zeros(len(roots))
    parent, size, queue = np.empty(nodes, np.int32), np.empty(nodes, np.int64), np.empty(nodes, np.int32)
    for place in range(len(roots)):
        parent[:] = -1
        queue[0], parent[roots[place]], head, tail = roots[place], roots[place], 0, 1
        while head < tail:
            u = queue[head]
            size[u] = 1
            head += 1
            for slot in range(offsets[u], offsets[u + 1]):
                v = targets[slot]
                if parent[v] < 0:
                    parent[v], queue[tail] = u, v
                    tail += 1
        for at in range(tail - 1, 0, -1):
            sums[place] += np.log(size[queue[at]])
            size[parent[queue[at]]] += size[queue[at]]
    return sums
