"""Closure: whom nobody in the mesh can need is there for its own sake.

The mesh is made of shortest ways to the publisher, so a forwarder has somebody below it: a neighbour in the mesh, one
hop further out. The observer needs the set V_a, the overlay and the publisher (`roots` does without), and no flow: the
shell game, which never changes who is in V_a, changes nothing here. A member without such a neighbour reads; that is
certain. One that has some may be there for their sake. A node w with n possible parents hangs on each of them with
probability 1/n, so of a node v that does not read

    q(v) = 1 - product over its possible children w of (1 - 1/n(w))

is the chance that it is in V_a nevertheless; a reader always is. By Bayes, with the share r of nodes that read,
P(v reads | v in V_a) = r / (r + (1 - r) q(v)).

Covers (probabilistic forwarding) are mostly not on shortest ways, and blur this. Those without a possible parent in
V_a are no part of the tree of ways, nor is who has none but them: they are dropped first, again and again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import descents
from veilcast.lab.kernels.graph import Graph

Mask = NDArray[np.bool_]


def certain(graph: Graph, members: Mask, distance: NDArray[np.int32]) -> Mask:
    """By node, whether it reads beyond doubt, if nobody covers. `distance` is that from the publisher."""
    inside = supported(graph, members, distance)
    unneeded: Mask = needed(graph, inside, distance) == 0
    return inside & unneeded & (distance > 0)


def posterior(graph: Graph, members: Mask, distance: NDArray[np.int32], rate: float) -> NDArray[np.float64]:
    """By node, the probability that it reads, where a share `rate` of all nodes does."""
    inside = supported(graph, members, distance)
    return np.where(inside & (distance > 0), reads(needed(graph, inside, distance), rate), 0.0)


def reads(needed: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """By Bayes, how likely a member reads that would be there with the chance `needed` if it did not."""
    return rate / (rate + (1 - rate) * needed)


def needed(graph: Graph, inside: Mask, distance: NDArray[np.int32], hanging: Mask | None = None) -> NDArray[np.float64]:
    """By node, the chance q that one of those inside hangs on it; of these only the `hanging` ones, if there are any
    that are known to have come or gone by themselves."""
    near, far = descents(graph, distance)
    among = inside[near] & inside[far]
    near, far = near[among], far[among]
    parents = np.bincount(far, minlength=graph.nodes)
    if hanging is not None:
        near, far = near[hanging[far]], far[hanging[far]]
    free = np.ones(graph.nodes)
    np.multiply.at(free, near, 1 - 1 / parents[far])
    return 1 - free


def supported(graph: Graph, members: Mask, distance: NDArray[np.int32]) -> Mask:
    """The members that shortest ways from the publisher reach through members alone."""
    near, far = descents(graph, distance)
    inside = members & (distance >= 0)
    while True:
        held = distance == 0
        held[far[inside[near]]] = True
        if np.array_equal(inside & held, inside):
            return inside
        inside &= held
