"""Attacks on the set of members of a mesh: closure, late join, survivor, centrality, and membership over many meshes.

All of these need only the overlay, the set V_a of members and the distances from the publisher, not the flow of
notifications. The shell game never changes V_a, so it does not help against them.

Closure attack: a mesh member that no other member needs as a forwarder must be a subscriber. The mesh consists of
shortest paths to the publisher. So a forwarder has a child: a neighbour in the mesh that is one hop further out. A
member without such a neighbour is certainly a subscriber. A member with possible children may be there for them. A node
w with n possible parents uses each of them with probability 1/n. So a node v that does not subscribe is in V_a with
probability

    q(v) = 1 - product over its possible children w of (1 - 1/n(w))

and a subscriber always is. By Bayes, with the share r of subscribers, P(v subscribes | v in V_a) = r / (r + (1 - r)
q(v)). Covers (probabilistic forwarding) are mostly not on shortest paths and blur this. Members without a possible
parent in V_a are not part of the tree of paths. They are dropped first, then the members that depended on them alone,
until none is left.

Late join: a node that joins an existing mesh reveals its join path. A subscription climbs from the subscriber to the
first member it meets. So the members that are new form that path, and its outer end is the subscriber. This is the
closure attack among the newcomers alone. A single new subscriber is named with certainty, unless it was a forwarder
already; then nothing is seen. Subscribers that join together hide each other only where their paths meet.

Survivor: when subscribers leave, forwarders without children leave too. A member that stays after all its possible
children have left is a subscriber. Of the members that leave together, the outer end was the subscriber (late join,
read backwards). Each departure leaves fewer members that could be needed, so closure says more about the rest than
about the whole mesh.

Centrality: a node on many shortest paths is a likely forwarder; a member on few paths is a likely subscriber. This
observer could compute everything before there is a mesh. Each node hangs on each of its nearer neighbours with the same
probability. The expected number of nodes below a node, itself included, is

    size(v) = 1 + sum over its possible children w of size(w) / n(w)

with n(w) the number of neighbours of w that are one hop nearer. If each node below subscribes with a small probability,
the probability of being needed grows with the size. So of two members the one with the smaller size is the likelier
subscriber.

Membership over meshes: another publisher, new links or absent nodes make another mesh. Forwarders change with it and
subscribers stay. `score_membership_frequency` counts. `score_membership_likelihood` also uses how much a node was
needed. Each mesh adds the logarithm of

    P(in the mesh | subscribes) / P(in the mesh | does not) = 1 / (q + (1 - q) c)

with c the probability that a node that no other node needs is there as a cover. A present subscriber is never left out
of the mesh, so one absence weighs as much as certainty. A subscriber has shortest paths, so against covers the observer
should look at `supported_members` only. Covers that are drawn again in each epoch fall back by themselves. Covers that
stay the same return together with the node they cover, as subscribers do; only those without a shortest path are
recognised.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import outward_links
from veilcast.lab.models.graph import Graph

Mask = NDArray[np.bool_]
Masks = NDArray[np.bool_]


def find_certain_subscribers(graph: Graph, members: Mask, distance: NDArray[np.int32]) -> Mask:
    """Mask of the certain subscribers, if no node is a cover. `distance` is counted in hops from the publisher."""
    inside = supported_members(graph, members, distance)
    unneeded: Mask = need_probability(graph, inside, distance) == 0
    return inside & unneeded & (distance > 0)


def score_closure(graph: Graph, members: Mask, distance: NDArray[np.int32], rate: float) -> NDArray[np.float64]:
    """The probability that it subscribes, where a share `rate` of all nodes does, by node."""
    inside = supported_members(graph, members, distance)
    return np.where(
        inside & (distance > 0), subscriber_probability(need_probability(graph, inside, distance), rate), 0.0
    )


def subscriber_probability(needed: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Bayes' rule: the probability that a member subscribes if it would be a member with probability `needed`
    otherwise."""
    return rate / (rate + (1 - rate) * needed)


def need_probability(
    graph: Graph, inside: Mask, distance: NDArray[np.int32], hanging: Mask | None = None
) -> NDArray[np.float64]:
    """The probability q that a member of `inside` hangs on it, by node. With `hanging`, only these members count: the
    ones known to have come or gone by themselves."""
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
    """Mask of the members that shortest paths from the publisher reach through members alone."""
    near, far = outward_links(graph, distance)
    inside = members & (distance >= 0)
    while True:
        held = distance == 0
        held[far[inside[near]]] = True
        if np.array_equal(inside & held, inside):
            return inside
        inside &= held


def score_late_join(
    graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32], rate: float
) -> NDArray[np.float64]:
    """The probability that it joined as a subscriber, by node; 0 for nodes that did not join. `distance` is counted
    from the publisher."""
    came, needed = _find_newcomers(graph, before, after, distance)
    return np.where(came, subscriber_probability(needed, rate), 0.0)


def find_certain_joiners(graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32]) -> Mask:
    """Mask of the nodes that certainly joined as subscribers, if no node is a cover."""
    came, needed = _find_newcomers(graph, before, after, distance)
    unneeded: Mask = needed == 0
    return came & unneeded


def score_membership_frequency(members: Masks, asked: Masks) -> NDArray[np.float64]:
    """The share of the meshes with each node, by the rule of succession: one of one is less than ten of ten.

    A row of `members` is the set V_a of one mesh. `asked` marks the nodes that a mesh says anything about: neither
    absent nodes nor the publisher, which is always in its mesh.
    """
    share: NDArray[np.float64] = (np.sum(members & asked, axis=0) + 1) / (np.sum(asked, axis=0) + 2)
    return share


def score_membership_likelihood(
    members: Masks, asked: Masks, needed: NDArray[np.float64], covers: float = 0.0
) -> NDArray[np.float64]:
    """The log-likelihood ratio of these observations for a subscriber against any other node, by node.

    `needed` holds, for each mesh and node, the probability q that the node is there for other members. `covers` is c.
    """
    chance = np.maximum(needed + (1 - needed) * covers, _DOUBT)
    told = np.where(members, -np.log(chance), np.log(_DOUBT))
    total: NDArray[np.float64] = np.sum(told, axis=0, where=asked)
    return total


def expected_subtree_sizes(graph: Graph, distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """The expected number of nodes below it, itself included, by node. `distance` is counted from the publisher."""
    near, far = outward_links(graph, distance)
    parents = np.bincount(far, minlength=graph.nodes)
    size = np.ones(graph.nodes)
    # From the outermost nodes inwards: the size of a subtree is known before it is added to its parents.
    for hop in range(int(distance.max()), 0, -1):
        last = distance[far] == hop
        np.add.at(size, near[last], size[far[last]] / parents[far[last]])
    return size


def score_centrality(graph: Graph, members: NDArray[np.bool_], distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """How much each node looks like a subscriber, from 0 outside the mesh up to 1 at its rim."""
    return np.where(members & (distance > 0), 1 / expected_subtree_sizes(graph, distance), 0.0)


def score_survivors(
    graph: Graph, looks: NDArray[np.bool_], distance: NDArray[np.int32], rate: float
) -> NDArray[np.float64]:
    """The probability that it subscribed at the first look, by node. A row of `looks` is the mesh at one look; from one
    row to the next some members have left and none has joined."""
    found = score_closure(graph, looks[-1], distance, rate)
    for earlier, later in pairwise(looks):
        left = earlier & ~later
        found[left] = score_late_join(graph, later, earlier, distance, rate)[left]
    return found


def _find_newcomers(
    graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32]
) -> tuple[Mask, NDArray[np.float64]]:
    """The mask of the newcomers; and by node, the probability that a newcomer hangs on it."""
    inside = supported_members(graph, after, distance)
    came = inside & ~before
    return came, need_probability(graph, inside, distance, came)


_DOUBT: Final = 1e-6
"""Probability that an observation is wrong; no observation counts as surer than this."""
