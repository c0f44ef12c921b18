"""Centrality: who stands where many ways meet forwards; who stands aside and is in the mesh nevertheless reads.

This observer does not look at how the members of V_a lie to one another; it could have worked out everything before
there was a mesh. From the publisher every node hangs on one of its nearer neighbours, on each with the same chance. The
expected number of nodes below one another, itself included, is then

    size(v) = 1 + sum over its possible children w of size(w) / n(w)

with n(w) the number of neighbours of w that are a hop nearer. If each of those below reads with a small probability,
that of being needed grows with the size; so of two members the one with the smaller size is more likely to read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import descents
from veilcast.lab.kernels.graph import Graph


def sizes(graph: Graph, distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node, the expected size of what hangs on it; `distance` is that from the publisher."""
    near, far = descents(graph, distance)
    parents = np.bincount(far, minlength=graph.nodes)
    size = np.ones(graph.nodes)
    # From the outermost inwards: what hangs on a node is known before it hangs on others.
    for hop in range(int(distance.max()), 0, -1):
        last = distance[far] == hop
        np.add.at(size, near[last], size[far[last]] / parents[far[last]])
    return size


def scores(graph: Graph, members: NDArray[np.bool_], distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node, how much it looks like a reader: from 0 outside the mesh up to 1 at its rim."""
    return np.where(members & (distance > 0), 1 / sizes(graph, distance), 0.0)
