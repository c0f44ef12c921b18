"""Pruning by one insider alone: shortest paths from itself to every node, minus those that the observations exclude.

This is the only insider that P0 (4.7) and P1 (3) discuss. It knows the overlay, so it knows through which of its
neighbours it reaches every node: the node's branch. If several neighbours do equally well, each node on the path
chooses any of the nearer ones.

As a subscriber it hears an advert and looks which of its neighbours are nearest to the origin. A publisher with other
nearest neighbours is excluded. P0 keeps the branch of the neighbour that sent the advert first (`score_first_branch`).
But the chain values of all neighbours say which are nearest, and that leaves fewer (`score_nearest_branches`).

As a publisher it is the root of the mesh, and one neighbour for each branch subscribes if the branch has a subscriber.
P0 and P1 stop here: all nodes of the branch are equally suspect, so its size is the anonymity set. But let r be the
share of subscribers and q the probability that any other node of the branch causes the subscription. By Bayes, the odds
of a node on the path grow with 1/q: small branches tell more, and a branch of one tells all. A branch also answers when
its nearest subscriber is reached: at once, or two hops later for each hop down. An insider that looks at the time knows
at which depth a subscriber is, and that none is above it. The anonymity set is then the nodes at that depth.

Over epochs: each epoch in which the insider published gives a probability for every node. Differences between epochs
are mostly due to random paths, so their mean counts. The publisher is the same in all epochs, so there the likelihoods
multiply and the remaining sets intersect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import distances_from, outward_links
from veilcast.lab.attack.insider.advert_origin import chain_hops
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import ASKED

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


def score_branch_subscribers(
    graph: Graph, insider: int, asked: Mask, rate: float, delay: NDArray[np.int16] | None = None
) -> NDArray[np.float64]:
    """The probability that it subscribes, where a share `rate` does, by node.

    `asked` marks the neighbours of the publishing insider that subscribed, each `delay` hops after its advert; without
    `delay` the insider did not look at the time.
    """
    distance, ways = find_branches(graph, insider)
    odds = np.zeros(graph.nodes)
    for branch in np.flatnonzero(asked):
        reach = ways[:, branch]
        depth = distance - 1
        told = depth >= 0 if delay is None else depth == delay[branch] // 2
        idle = np.where(told, np.log1p(-rate * reach), 0.0)
        by_others = -np.expm1(idle.sum() - idle)
        # The evidence says nothing about nodes further out than the nearest subscriber.
        further = np.zeros(graph.nodes) if delay is None else (depth > delay[branch] // 2).astype(np.float64)
        odds += reach * np.where(told, 1 / (by_others + _TINY), further)
    odds *= rate / (1 - rate)
    odds[insider] = 0.0
    return odds / (1 + odds)


def score_first_branch(graph: Graph, insider: int, first: int) -> NDArray[np.float64]:
    """The probability of each node to publish, if the subscribing insider received the advert first from its neighbour
    number `first`: P0's insider. Nodes above 0 are in the anonymity set."""
    _, ways = find_branches(graph, insider)
    nearest = ways > 0
    return _shares(nearest[:, first] / np.maximum(1, nearest.sum(axis=1)))


def score_nearest_branches(graph: Graph, insider: int, told: Mask) -> NDArray[np.float64]:
    """The same, if the chain values say that exactly the neighbours in `told` are nearest to the origin."""
    distance, ways = find_branches(graph, insider)
    return _shares(((ways > 0) == told).all(axis=1) & (distance > 0))


def find_branches(graph: Graph, insider: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Distances from the insider; and nodes x neighbours, the probability that a node's path enters by that
    neighbour."""
    distance = distances_from(graph, insider)
    near, far = outward_links(graph, distance)
    ways = np.zeros((graph.nodes, graph.degree(insider)))
    ways[graph.neighbours(insider), np.arange(graph.degree(insider))] = 1.0
    parents = np.bincount(far, minlength=graph.nodes)
    for hop in range(2, distance.max() + 1):
        here = distance[far] == hop
        np.add.at(ways, far[here], ways[near[here]] / parents[far[here], None])
    return distance, ways


def score_subscribers_by_pruning(coalition: CoalitionObservations, rate: float, *, timed: bool) -> Scores:
    """The probability that it subscribes to what the insider published, where a share `rate` does, by node."""
    insider, seen = _insider(coalition), coalition.seen
    found = []
    for epoch in np.flatnonzero(seen.origin == insider):
        here = coalition.overlay(int(epoch))
        link = np.searchsorted(seen.peer, here.neighbours(insider))
        asked, delay = seen.seen[epoch, link] == ASKED, seen.delay[epoch, link]
        looks = timed and bool((delay[asked] >= 0).all())
        found.append(score_branch_subscribers(here, insider, asked, rate, delay if looks else None))
    return np.mean(found, axis=0) if found else np.zeros(coalition.graph.nodes)


def score_publisher_by_first_advert(coalition: CoalitionObservations) -> Scores:
    """The log-likelihood of each node to publish, given the neighbours that sent the insider each advert first, as in
    P0."""
    insider, adverts = _insider(coalition), coalition.adverts
    return _sum_logs(
        coalition.graph.nodes,
        (
            score_first_branch(here, insider, int(np.searchsorted(here.neighbours(insider), peer)))
            for epoch, peer in zip(adverts.epoch.tolist(), adverts.peer.tolist(), strict=True)
            if peer in (here := coalition.overlay(epoch)).neighbours(insider)
        ),
    )


def score_publisher_by_chains(coalition: CoalitionObservations) -> Scores:
    """The same, by all neighbours whose chain values say that they are nearest."""
    return _sum_logs(coalition.graph.nodes, _by_chains(coalition))


def _shares(weights: NDArray[np.float64] | Mask) -> NDArray[np.float64]:
    return weights / max(_TINY, float(weights.sum()))


def _by_chains(coalition: CoalitionObservations) -> Iterable[Scores]:
    insider, chains = _insider(coalition), coalition.chains
    for epoch in np.unique(chains.epoch).tolist():
        rows, here = np.flatnonzero(chains.epoch == epoch), coalition.overlay(epoch)
        hops = chain_hops([chains.value[row] for row in rows])
        near = chains.peer[rows[hops == np.nanmin(hops)]]
        yield score_nearest_branches(here, insider, np.isin(here.neighbours(insider), near))


def _insider(coalition: CoalitionObservations) -> int:
    return int(np.flatnonzero(coalition.hostile)[0])


def _sum_logs(nodes: int, found: Iterable[Scores]) -> Scores:
    """The log-likelihood of all observations; no epoch excludes a node with certainty, because clocks err."""
    total = np.zeros(nodes)
    for each in found:
        total += np.log(each + MISTAKEN)
    return total


_TINY: Final = 1e-12
MISTAKEN: Final = 1e-6
"""Probability that an epoch's evidence excludes a node by mistake."""
