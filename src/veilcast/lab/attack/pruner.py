"""One insider, alone, who prunes in every epoch that it sees; what each epoch leaves is put together.

How a branch is pruned is said in `pruning`. Of readers an insider learns where it published itself: each epoch gives a
probability for every node, and as most of what makes one differ from another is chance of the ways, their mean counts.
A publisher is one for all epochs, so there the likelihoods multiply, and the sets that are left intersect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import pruning
from veilcast.lab.attack.coalition import Coalition
from veilcast.lab.attack.trilateration import further
from veilcast.lab.kernels.graph import Graph, from_edges
from veilcast.lab.kernels.sights import ASKED

Scores = NDArray[np.float64]


def readers(coalition: Coalition, rate: float, *, timed: bool) -> Scores:
    """By node, the probability that it reads what the insider published, where a share `rate` does."""
    insider, seen = _insider(coalition), coalition.seen
    found = []
    for epoch in np.flatnonzero(seen.origin == insider):
        here = _overlay(coalition, int(epoch))
        link = np.searchsorted(seen.peer, here.neighbours(insider))
        asked, delay = seen.seen[epoch, link] == ASKED, seen.delay[epoch, link]
        looks = timed and bool((delay[asked] >= 0).all())
        found.append(pruning.subscribers(here, insider, asked, rate, delay if looks else None))
    return np.mean(found, axis=0) if found else np.zeros(coalition.graph.nodes)


def first_told(coalition: Coalition) -> Scores:
    """By node, how likely it publishes: by who told the insider first, as P0 has it."""
    insider, adverts = _insider(coalition), coalition.adverts
    return _together(
        coalition.graph.nodes,
        (
            pruning.branch(here, insider, int(np.searchsorted(here.neighbours(insider), peer)))
            for epoch, peer in zip(adverts.epoch.tolist(), adverts.peer.tolist(), strict=True)
            if peer in (here := _overlay(coalition, epoch)).neighbours(insider)
        ),
    )


def nearest(coalition: Coalition) -> Scores:
    """The same by all whose chain values say that they are nearest."""
    return _together(coalition.graph.nodes, _by_chains(coalition))


def _by_chains(coalition: Coalition) -> Iterable[Scores]:
    insider, chains = _insider(coalition), coalition.chains
    for epoch in np.unique(chains.epoch).tolist():
        rows, here = np.flatnonzero(chains.epoch == epoch), _overlay(coalition, epoch)
        hops = further([chains.value[row] for row in rows])
        near = chains.peer[rows[hops == np.nanmin(hops)]]
        yield pruning.nearest(here, insider, np.isin(here.neighbours(insider), near))


def _insider(coalition: Coalition) -> int:
    return int(np.flatnonzero(coalition.enemy)[0])


def _overlay(coalition: Coalition, epoch: int) -> Graph:
    """Of those who are there; the insider is."""
    there = coalition.seen.present[epoch] | coalition.enemy
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
