"""Attacks on the publisher by a global observer: flow source, unique-root inference, and rumor centrality.

Flow source: the node that sends a notification before it receives one has published it. The observer sees copies of
every publication, each with two ends and a time. Every node that has the notification has received it, except one. A
copy on an unwatched link makes another node look like the source. Over many publications these errors change, and the
publisher does not. Links that carry cells of one size at one rate show nothing of this.

Unique root: in a mesh of shortest paths every member has a member one hop nearer to the publisher. Under any other root
this fails for some members: the distances call for nodes on the path that are not members. So an observer that sees
only the set V_a tries every member as the root and counts the members without a possible parent. In practice one root
remains that leaves none. Covers hang where no shortest path leads and leave orphans under every root; then the root
with the fewest is the best guess.

Rumor centrality: an observer that comes late sees only which nodes have a notification, not which had it first. If the
notification spreads over a tree and every link is as likely to be next, the probability that it began at v is
proportional to the number of orders in which it can have reached the others (Shah and Zaman 2011):

    R(v) = n! / product over all u of T(u, v)

where T(u, v) is the number of nodes below u if v is the root. In an overlay with cycles the tree of shortest paths from
v stands in. On a tree that grows faster than a line this finds the source with a probability that does not vanish, and
below one half where all degrees are equal. Where all hops take the same time, the nodes that have the notification are
a ball. Then the Jordan centre, the node whose farthest node is nearest, is the better guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.hops import hop_distances, outward_links
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.numba_cache import jit

Mask = NDArray[np.bool_]


def score_roots(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of the members that have a possible parent if this node is the root, by node; 0 for nodes outside the
    mesh."""
    tried = np.flatnonzero(members).astype(np.int32)
    found = np.zeros(graph.nodes)
    for root, distance in zip(tried, hop_distances(graph, tried), strict=True):
        near, far = outward_links(graph, distance)
        held = distance == 0
        held[far[members[near]]] = True
        found[root] = np.count_nonzero(held & members) / len(tried)
    return found


def find_possible_roots(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of the nodes from which the whole mesh can be explained."""
    explains: NDArray[np.bool_] = score_roots(graph, members) == 1
    return members & explains


def find_likeliest_root(graph: Graph, members: NDArray[np.bool_]) -> int:
    """The root that explains most members; the first one of several."""
    return int(np.argmax(score_roots(graph, members)))


def score_flow_source(
    publication: NDArray[np.int64],
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    at: NDArray[np.int64],
    nodes: int,
) -> NDArray[np.float64]:
    """Its share of the publications that it sent before it received, by node; one row for each copy that was seen."""
    numbers, which = np.unique(publication, return_inverse=True)
    sent, received = (np.full((len(numbers), nodes), np.inf) for _ in range(2))
    np.minimum.at(sent, (which, src), at)
    np.minimum.at(received, (which, dst), at)
    share: NDArray[np.float64] = np.sum(sent < received, axis=0) / max(1, len(numbers))
    return share


def score_rumor(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """The probability that the notification began there, by node. The infected nodes are connected."""
    tried = np.flatnonzero(infected).astype(np.int32)
    found = np.zeros(graph.nodes)
    if len(tried):
        within = _among(graph, infected)
        found[tried] = softmax(-_log_sizes(within.offsets, within.targets, tried))
    return found


def score_jordan_centre(graph: Graph, infected: Mask) -> NDArray[np.float64]:
    """1 / (1 + hops to the farthest infected node), by node; 0 for nodes that are not infected."""
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
    """For each root, the sum of the logarithms of all subtree sizes in its tree of shortest paths."""
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
