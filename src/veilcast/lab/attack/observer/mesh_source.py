"""Rumor centrality: of all who have a note at one moment, who is in the middle of them?

An observer that comes late sees only who has it, not who had it first. If it spreads over a tree and every link is as
likely to be next, the chance that it began at v is proportional to the number of orders in which it may have reached
the others from there (Shah and Zaman 2011):

    R(v) = n! / product over all u of T(u, v)

where T(u, v) is how many are below u if v is the root. Where links form circles, the tree of shortest ways from v
stands for them. On a tree that grows faster than a line this finds the source with a probability that does not vanish,
and less than a half where every node has the same degree. Where hops take equal times those who have it are a ball, and
the Jordan centre, from which the farthest is nearest, is the better guess.


Unique-root inference: the publisher is the one from whom the mesh can be explained.

A mesh of shortest ways has, for every member, a member one hop nearer to the publisher. Held against any other node
this fails somewhere: distances from it call for nodes on the way that are not there. So whoever sees only the set V_a
tries every member as the root, and counts the members that are left without a possible parent. In practice one root
remains that leaves none. Covers hang where no shortest way led, and leave some orphans under every root; then the root
with the fewest is the best guess.


Flow source: who sends a note before anybody has sent it one has made it.

Against publishers nothing is simpler. Of every publication the observer sees copies, each with two ends and a time;
all who have it have received it, but for one. What is missed (a copy on a link that is not watched) makes others look
like the source; over many publications they change, and the publisher does not. Where all links carry cells of one
size at one rate there is nothing to be seen here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.hops import hop_distances, outward_links
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.numba_cache import jit


def score_roots(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By node, the share of the members that have a possible parent if it is the root; 0 of who is no member."""
    tried = np.flatnonzero(members).astype(np.int32)
    found = np.zeros(graph.nodes)
    for root, distance in zip(tried, hop_distances(graph, tried), strict=True):
        near, far = outward_links(graph, distance)
        held = distance == 0
        held[far[members[near]]] = True
        found[root] = np.count_nonzero(held & members) / len(tried)
    return found


def find_possible_roots(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By node, whether the whole mesh can be explained from it."""
    explains: NDArray[np.bool_] = score_roots(graph, members) == 1
    return members & explains


def find_likeliest_root(graph: Graph, members: NDArray[np.bool_]) -> int:
    """The root that explains most; of several the first."""
    return int(np.argmax(score_roots(graph, members)))


def score_flow_source(
    publication: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    at: NDArray[np.int64],
    nodes: int,
) -> NDArray[np.float64]:
    """By node, in what share of the publications it sent before it received; a row for each copy that was seen."""
    numbers, which = np.unique(publication, return_inverse=True)
    sent, received = (np.full((len(numbers), nodes), np.inf) for _ in range(2))
    np.minimum.at(sent, (which, src), at)
    np.minimum.at(received, (which, dst), at)
    share: NDArray[np.float64] = np.sum(sent < received, axis=0) / max(1, len(numbers))
    return share


Mask = NDArray[np.bool_]


def score_rumor(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """By node, the probability that it began there; those who have it are connected."""
    tried = np.flatnonzero(infected).astype(np.int32)
    found = np.zeros(graph.nodes)
    if len(tried):
        within = _among(graph, infected)
        found[tried] = softmax(-_log_sizes(within.offsets, within.targets, tried))
    return found


def score_jordan_centre(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """By node, how near the farthest of those who have it is: 1 / (1 + hops), and 0 of who does not have it."""
    tried = np.flatnonzero(infected).astype(np.int32)
    found = np.zeros(graph.nodes)
    if len(tried):
        found[tried] = 1 / (1 + hop_distances(_among(graph, infected), tried).max(axis=1))
    return found


def _among(graph: Graph, infected: Mask) -> Graph:
    u, v = graph.edges()
    inside = infected[u] & infected[v]
    return from_edges(graph.nodes, u[inside], v[inside])


@jit
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
