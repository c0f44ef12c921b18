"""Survivors: when readers leave, the mesh is pruned back to those who still need it, and who stays is told.

A forwarder that has nobody below it any more leaves too. So one who stays when all have left who could have hung on it
reads; and of those who leave together the outer end has read, and the others were there for its sake (`closure`, read
backwards). Each pruning leaves fewer who could be needed, and so what closure says about those who are left is sharper
than what it said about the whole.


Closure: whom nobody in the mesh can need is there for its own sake.

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


Late join: who comes into a mesh that stands comes by itself, and shows its way.

A subscription goes from the reader up to the first member that it meets. So those who are in the mesh now and were not
before are that way, and its outer end reads. It is `closure` among the newcomers alone: each of them is there for its
own sake or for that of a newcomer below it, whatever those do who were there. One reader at a time is named with
certainty, unless it was a forwarder already and nothing is seen; many at once hide one another only where their ways
meet. The shell game is of no use, for it brings nobody in.


Restructurings: who is in every mesh of a topic, however it is laid, is there for its own sake.

Another publisher, new ties or a few nodes that are away make another mesh. Forwarders change with it, and readers stay;
the shell game cannot help, for it only moves about who is there. Rows of `members` are meshes as sets V_a; `asked`
says of whom a mesh tells anything: not of who is away, nor of the publisher, who is in it in any case.

`score_membership_frequency` counts. `score_membership_likelihood` asks in addition how much a node was needed
(`closure.needed`): to be there without
being needed says more than to be there where all ways meet. Each mesh adds the logarithm of

    P(in it | reads) / P(in it | does not) = 1 / (q + (1 - q) c)

with c the chance that somebody whom nobody needs is there all the same, as a cover. A reader who is there is never left
out, so to be missing once weighs as much as to be certain. And a reader has shortest ways, so against covers it is best
to be shown what `closure.supported` leaves of a mesh. Covers that are drawn anew fall back by themselves. Those who
stay the same come back with whom they cover, as readers do, and only where they have no shortest way are they told.


Centrality: who stands where many ways meet forwards; who stands aside and is in the mesh nevertheless reads.

This observer does not look at how the members of V_a lie to one another; it could have worked out everything before
there was a mesh. From the publisher every node hangs on one of its nearer neighbours, on each with the same chance. The
expected number of nodes below one another, itself included, is then

    size(v) = 1 + sum over its possible children w of size(w) / n(w)

with n(w) the number of neighbours of w that are a hop nearer. If each of those below reads with a small probability,
that of being needed grows with the size; so of two members the one with the smaller size is more likely to read."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import outward_links
from veilcast.lab.attack.observer import closure
from veilcast.lab.models.graph import Graph

Mask = NDArray[np.bool_]


def find_certain_subscribers(graph: Graph, members: Mask, distance: NDArray[np.int32]) -> Mask:
    """By node, whether it reads beyond doubt, if nobody covers. `distance` is that from the publisher."""
    inside = supported_members(graph, members, distance)
    unneeded: Mask = need_probability(graph, inside, distance) == 0
    return inside & unneeded & (distance > 0)


def score_closure(graph: Graph, members: Mask, distance: NDArray[np.int32], rate: float) -> NDArray[np.float64]:
    """By node, the probability that it reads, where a share `rate` of all nodes does."""
    inside = supported_members(graph, members, distance)
    return np.where(
        inside & (distance > 0), subscriber_probability(need_probability(graph, inside, distance), rate), 0.0
    )


def subscriber_probability(needed: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """By Bayes, how likely a member reads that would be there with the chance `need_probability` if it did not."""
    return rate / (rate + (1 - rate) * needed)


def need_probability(
    graph: Graph, inside: Mask, distance: NDArray[np.int32], hanging: Mask | None = None
) -> NDArray[np.float64]:
    """By node, the chance q that one of those inside hangs on it; of these only the `hanging` ones, if there are any
    that are known to have come or gone by themselves."""
    near, far = outward_links(graph, distance)
    among = inside[near] & inside[far]
    near, far = near[among], far[among]
    parents = np.bincount(far, minlength=graph.nodes)
    if hanging is not None:
        near, far = near[hanging[far]], far[hanging[far]]
    free = np.ones(graph.nodes)
    np.multiply.at(free, near, 1 - 1 / parents[far])
    return 1 - free


def supported_members(graph: Graph, members: Mask, distance: NDArray[np.int32]) -> Mask:
    """The members that shortest ways from the publisher reach through members alone."""
    near, far = outward_links(graph, distance)
    inside = members & (distance >= 0)
    while True:
        held = distance == 0
        held[far[inside[near]]] = True
        if np.array_equal(inside & held, inside):
            return inside
        inside &= held


_JoinMask = NDArray[np.bool_]


def score_late_join(
    graph: Graph, before: _JoinMask, after: _JoinMask, distance: NDArray[np.int32], rate: float
) -> NDArray[np.float64]:
    """By node, the probability that it came to read; 0 of who did not come. `distance` is that from the publisher."""
    came, needed = _find_newcomers(graph, before, after, distance)
    return np.where(came, closure.subscriber_probability(needed, rate), 0.0)


def find_certain_joiners(graph: Graph, before: _JoinMask, after: _JoinMask, distance: NDArray[np.int32]) -> _JoinMask:
    """By node, whether it came to read beyond doubt, if nobody covers."""
    came, needed = _find_newcomers(graph, before, after, distance)
    unneeded: _JoinMask = needed == 0
    return came & unneeded


def _find_newcomers(
    graph: Graph, before: _JoinMask, after: _JoinMask, distance: NDArray[np.int32]
) -> tuple[_JoinMask, NDArray[np.float64]]:
    """Who came, and by node the chance that one of them hangs on it."""
    inside = closure.supported_members(graph, after, distance)
    came = inside & ~before
    return came, closure.need_probability(graph, inside, distance, came)


Masks = NDArray[np.bool_]


def score_membership_frequency(members: Masks, asked: Masks) -> NDArray[np.float64]:
    """By node, in what share of the meshes it was, by the rule of succession: one of one is less than ten of ten."""
    share: NDArray[np.float64] = (np.sum(members & asked, axis=0) + 1) / (np.sum(asked, axis=0) + 2)
    return share


def score_membership_likelihood(
    members: Masks, asked: Masks, needed: NDArray[np.float64], covers: float = 0.0
) -> NDArray[np.float64]:
    """By node, the logarithm of how much likelier it is to have been seen so as a reader than as another.

    `needed` has, for each mesh and node, the chance q that it is there for others' sake.
    """
    chance = np.maximum(needed + (1 - needed) * covers, _DOUBT)
    told = np.where(members, -np.log(chance), np.log(_DOUBT))
    total: NDArray[np.float64] = np.sum(told, axis=0, where=asked)
    return total


_DOUBT: Final = 1e-6
"""No observation is surer than this: one may be mistaken."""


def expected_subtree_sizes(graph: Graph, distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node, the expected size of what hangs on it; `distance` is that from the publisher."""
    near, far = outward_links(graph, distance)
    parents = np.bincount(far, minlength=graph.nodes)
    size = np.ones(graph.nodes)
    # From the outermost inwards: what hangs on a node is known before it hangs on others.
    for hop in range(int(distance.max()), 0, -1):
        last = distance[far] == hop
        np.add.at(size, near[last], size[far[last]] / parents[far[last]])
    return size


def score_centrality(graph: Graph, members: NDArray[np.bool_], distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node, how much it looks like a reader: from 0 outside the mesh up to 1 at its rim."""
    return np.where(members & (distance > 0), 1 / expected_subtree_sizes(graph, distance), 0.0)


def score_survivors(
    graph: Graph, looks: NDArray[np.bool_], distance: NDArray[np.int32], rate: float
) -> NDArray[np.float64]:
    """By node, the probability that it read when first looked at. A row of `looks` is the mesh at one look; from one
    row to the next some have left, and nobody has come."""
    found = score_closure(graph, looks[-1], distance, rate)
    for earlier, later in pairwise(looks):
        left = earlier & ~later
        found[left] = score_late_join(graph, later, earlier, distance, rate)[left]
    return found
