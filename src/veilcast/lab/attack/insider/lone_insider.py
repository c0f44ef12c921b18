"""One insider, alone, who prunes in every epoch that it sees; what each epoch leaves is put together.

How a branch is pruned is said in `lone_insider`. Of readers an insider learns where it published itself: each epoch
gives a
probability for every node, and as most of what makes one differ from another is chance of the ways, their mean counts.
A publisher is one for all epochs, so there the likelihoods multiply, and the sets that are left intersect.


Pruning: one insider, alone, takes the shortest ways from itself to everybody and cuts off what cannot be.

It is the only insider whom P0 (4.7) and P1 (3) argue about. It knows the overlay, so it knows by which of its
neighbours every node is reached: the node's branch. Several neighbours may do equally well, and then each node on the
way is taken to choose any of the nearer ones.

As a subscriber it hears an advert and looks which of its neighbours are nearest to where it began. A publisher for whom
other neighbours would have been nearest is cut off. P0 keeps the branch of the neighbour that told first
(`score_first_branch`);
but the chain values that all of them send say which are nearest, and that leaves fewer (`score_nearest_branches`).

As a publisher it is the root of the mesh and is told by one neighbour for each branch that somebody in it subscribes.
P0 and P1 stop here: all in the branch are equally suspect, so its size is the anonymity set. For a node v on the way by
w, with a share r of nodes that read, and q the chance that anybody else in the branch brings it about, Bayes gives odds
that grow with 1/q: small branches tell more, and a branch of one tells all. And a branch answers when its
nearest reader was reached: at once, or two hops later for each hop down. Whoever looks at the time knows at which
depth somebody reads, and that nobody does above it; the set is then those at that depth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.hops import distances_from, outward_links
from veilcast.lab.attack.insider.advert_origin import chain_hops
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.link_observations import ASKED

Mask = NDArray[np.bool_]


def score_branch_subscribers(
    graph: Graph, insider: int, asked: Mask, rate: float, delay: NDArray[np.int16] | None = None
) -> NDArray[np.float64]:
    """By node, the probability that it reads, where a share `rate` does and these neighbours of the publishing insider
    subscribed, each so many hops after its advert; without `delay`, nobody looked at the time."""
    distance, ways = find_branches(graph, insider)
    odds = np.zeros(graph.nodes)
    for branch in np.flatnonzero(asked):
        reach = ways[:, branch]
        depth = distance - 1
        told = depth >= 0 if delay is None else depth == delay[branch] // 2
        idle = np.where(told, np.log1p(-rate * reach), 0.0)
        by_others = -np.expm1(idle.sum() - idle)
        # Who is further out than the nearest reader is as likely to read as before.
        further = np.zeros(graph.nodes) if delay is None else (depth > delay[branch] // 2).astype(np.float64)
        odds += reach * np.where(told, 1 / (by_others + _TINY), further)
    odds *= rate / (1 - rate)
    odds[insider] = 0.0
    return odds / (1 + odds)


def score_first_branch(graph: Graph, insider: int, first: int) -> NDArray[np.float64]:
    """By node, the probability that it publishes, where the subscribing insider had the advert first by this one of its
    neighbours, counted in order: P0's insider. Who is not 0 is in the set."""
    _, ways = find_branches(graph, insider)
    nearest = ways > 0
    return _shares(nearest[:, first] / np.maximum(1, nearest.sum(axis=1)))


def score_nearest_branches(graph: Graph, insider: int, told: Mask) -> NDArray[np.float64]:
    """The same where the chain values say that these are the neighbours that are nearest, and no others are."""
    distance, ways = find_branches(graph, insider)
    return _shares(((ways > 0) == told).all(axis=1) & (distance > 0))


def find_branches(graph: Graph, insider: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """How far everybody is; and nodes x neighbours, the probability that a node's way comes in by that neighbour."""
    distance = distances_from(graph, insider)
    near, far = outward_links(graph, distance)
    ways = np.zeros((graph.nodes, graph.degree(insider)))
    ways[graph.neighbours(insider), np.arange(graph.degree(insider))] = 1.0
    parents = np.bincount(far, minlength=graph.nodes)
    for hop in range(2, distance.max() + 1):
        here = distance[far] == hop
        np.add.at(ways, far[here], ways[near[here]] / parents[far[here], None])
    return distance, ways


def _shares(weights: NDArray[np.float64] | Mask) -> NDArray[np.float64]:
    return weights / max(_TINY, float(weights.sum()))


_TINY: Final = 1e-12

Scores = NDArray[np.float64]


def score_subscribers_by_pruning(coalition: CoalitionObservations, rate: float, *, timed: bool) -> Scores:
    """By node, the probability that it reads what the insider published, where a share `rate` does."""
    insider, seen = _insider(coalition), coalition.seen
    found = []
    for epoch in np.flatnonzero(seen.origin == insider):
        here = _overlay(coalition, int(epoch))
        link = np.searchsorted(seen.peer, here.neighbours(insider))
        asked, delay = seen.seen[epoch, link] == ASKED, seen.delay[epoch, link]
        looks = timed and bool((delay[asked] >= 0).all())
        found.append(score_branch_subscribers(here, insider, asked, rate, delay if looks else None))
    return np.mean(found, axis=0) if found else np.zeros(coalition.graph.nodes)


def score_publisher_by_first_advert(coalition: CoalitionObservations) -> Scores:
    """By node, how likely it publishes: by who told the insider first, as P0 has it."""
    insider, adverts = _insider(coalition), coalition.adverts
    return _together(
        coalition.graph.nodes,
        (
            score_first_branch(here, insider, int(np.searchsorted(here.neighbours(insider), peer)))
            for epoch, peer in zip(adverts.epoch.tolist(), adverts.peer.tolist(), strict=True)
            if peer in (here := _overlay(coalition, epoch)).neighbours(insider)
        ),
    )


def score_publisher_by_chains(coalition: CoalitionObservations) -> Scores:
    """The same by all whose chain values say that they are nearest."""
    return _together(coalition.graph.nodes, _by_chains(coalition))


def _by_chains(coalition: CoalitionObservations) -> Iterable[Scores]:
    insider, chains = _insider(coalition), coalition.chains
    for epoch in np.unique(chains.epoch).tolist():
        rows, here = np.flatnonzero(chains.epoch == epoch), _overlay(coalition, epoch)
        hops = chain_hops([chains.value[row] for row in rows])
        near = chains.peer[rows[hops == np.nanmin(hops)]]
        yield score_nearest_branches(here, insider, np.isin(here.neighbours(insider), near))


def _insider(coalition: CoalitionObservations) -> int:
    return int(np.flatnonzero(coalition.hostile)[0])


def _overlay(coalition: CoalitionObservations, epoch: int) -> Graph:
    """Of those who are there; the insider is."""
    there = coalition.seen.present[epoch] | coalition.hostile
    u, v = coalition.graph.edges()
    both = there[u] & there[v]
    return from_edges(coalition.graph.nodes, u[both], v[both])


def _together(nodes: int, found: Iterable[Scores]) -> Scores:
    """The log-likelihood of all that was heard; in no epoch is anybody cut off for certain, for clocks err."""
    total = np.zeros(nodes)
    for each in found:
        total += np.log(each + _MISTAKEN)
    return total


_MISTAKEN: Final = 1e-6
