"""Bearers: to whom of the next node, or which readers, one replica sends a publication's manifest and its blocks.

Pure. The manifest goes from each replica to f + 1 of the next node, so all honest ones get it; that of another attempt
to all, for nobody signs which attempt it is, and more replicas than can lie must say so (`carried.Attempts`). Blocks go
along, or their own ways (`content.carriers`), around proven liars where others are left.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilcast.brokers.carried import Carried
from veilcast.brokers.content import Strategy, carriers
from veilcast.brokers.routes import Branch, Peer, Routes, replicas
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.brokers.standing import Suspicions


class Bearers:
    """As one broker chooses them."""

    def __init__(self, strategy: Strategy, routes: Routes, suspicions: Suspicions) -> None:
        self._strategy, self._routes, self._suspicions = strategy, routes, suspicions

    def of_block(self, content: Carried, branch: Branch, index: int) -> list[Peer]:
        """Who gets this block of us. A reader has it from f + 1 replicas where all have it, else from who has it."""
        strategy = Strategy.CODED if len(content.manifest.digests) > 1 else self._strategy
        us = self._us()
        if not isinstance(branch, Scheme):
            chosen = strategy is not Strategy.COPIES or us in _first_of(us.scheme, content)
            return [branch] if chosen else []
        indices = carriers(strategy, content.id, index, branch, content.attempt, us.index)
        return list(self._around(branch, indices))

    def of_manifest(self, content: Carried, branch: Branch) -> list[Peer]:
        us = self._us()
        if not isinstance(branch, Scheme):
            return [branch] if us in _first_of(us.scheme, content) else []
        if content.attempt:
            return list(replicas(branch))
        return list(self._around(branch, carriers(Strategy.COPIES, content.id, 1, branch, 0, us.index)))

    def _around(self, scheme: Scheme, indices: Sequence[int]) -> list[Place]:
        """As many replicas, from the first of these on, that were not proven to lie, if there are so many."""
        start = indices[0] - 1
        order = [Place(scheme, (start + step) % scheme.size + 1) for step in range(scheme.size)]
        return self._suspicions.around(order, len(indices))[: len(indices)]

    def _us(self) -> Place:
        return self._routes.places()[0]


def _first_of(scheme: Scheme, content: Carried) -> list[Place]:
    """The f + 1 replicas of our node that a client has this content from."""
    start = content.id[0] % scheme.size
    return [Place(scheme, (start + step) % scheme.size + 1) for step in range(scheme.tolerated + 1)]
