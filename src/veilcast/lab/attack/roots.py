"""Unique-root inference: the publisher is the one from whom the mesh can be explained.

A mesh of shortest ways has, for every member, a member one hop nearer to the publisher. Held against any other node
this fails somewhere: distances from it call for nodes on the way that are not there. So whoever sees only the set V_a
tries every member as the root, and counts the members that are left without a possible parent. In practice one root
remains that leaves none. Covers hang where no shortest way led, and leave some orphans under every root; then the root
with the fewest is the best guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import descents, hops
from veilcast.lab.kernels.graph import Graph


def scores(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By node, the share of the members that have a possible parent if it is the root; 0 of who is no member."""
    tried = np.flatnonzero(members).astype(np.int32)
    found = np.zeros(graph.nodes)
    for root, distance in zip(tried, hops(graph, tried), strict=True):
        near, far = descents(graph, distance)
        held = distance == 0
        held[far[members[near]]] = True
        found[root] = np.count_nonzero(held & members) / len(tried)
    return found


def candidates(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By node, whether the whole mesh can be explained from it."""
    explains: NDArray[np.bool_] = scores(graph, members) == 1
    return members & explains


def likeliest(graph: Graph, members: NDArray[np.bool_]) -> int:
    """The root that explains most; of several the first."""
    return int(np.argmax(scores(graph, members)))
