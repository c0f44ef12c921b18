"""Probabilistic forwarding (P0 4.6): nodes outside a mesh are taken in as covers, so that a leaf need not be a
subscriber.

1. A node that has joined a mesh flips a coin. On success it invites a neighbour to be its cover.
2. No node knows which others are in the mesh. A node that is already in it declines, and the next is asked.
3. A node that accepts sends a plain `Subscribe`. From then on the cover is a forwarder like any other, and looks for
   covers itself.
4. The coin and the order of asking are drawn once for each topic and kept. P0 5 also tries a new choice for every
   publication, and finds that it exposes the subscribers: there, a node that has forwarded a notification dismisses its
   covers, and flips the coin again when they have left.

A cover depends on its inviter, and its branch is no reason for the inviter to stay. When the inviter leaves, it
dismisses its covers by a `Decline`. A cover that others come to depend on is a forwarder in its own right and finds its
own way.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from veilcast.machine import Address
from veilcast.mesh.config import CoverConfig
from veilcast.mesh.hiding_policy import BaselinePolicy, PolicyContext
from veilcast.wire.base import Message
from veilcast.wire.mesh import Decline, Invite, Subscribe


class ProbabilisticForwarding(BaselinePolicy):
    """Both rules: "one" asks one neighbour after the other until one accepts; "each" asks all that the coin chose."""

    def __init__(self, rule: CoverConfig, context: PolicyContext, rng: Random, tokens_max: int) -> None:
        super().__init__(context)
        self._rule, self._rng, self._tokens_max = rule, rng, tokens_max
        self._parents: dict[bytes, Address] = {}
        self._searches: dict[bytes, _CoverSearch] = {}

    def parent(self, token: bytes) -> Address | None:
        return self._parents.get(token)

    def covers(self, token: bytes) -> Collection[Address]:
        search = self._searches.get(token)
        return search.covers if search is not None else ()

    def on_joined(self, token: bytes, now: int) -> None:
        search = self._searches.get(token)
        if search is None:
            if len(self._searches) >= self._tokens_max:
                return
            search = self._searches[token] = _CoverSearch(self._draw())
        search.start(now if token in self._parents else now + self._rule.delay_us)

    def on_left(self, token: bytes) -> list[Address]:
        search = self._searches.get(token)
        return search.stop() if search is not None else []

    def on_forwarded(self, token: bytes, now: int) -> None:
        if self._rule.choice == "kept" or token not in self._searches:
            return
        for cover in self.on_left(token):
            self._context.branches.remove_outward(token, cover)
            self._context.send(cover, Decline(token))
        search = self._searches[token] = _CoverSearch(self._draw())
        search.start(now + self._rule.delay_us)

    def on_neighbour_lost(self, neighbour: Address) -> None:
        self._parents = {token: parent for token, parent in self._parents.items() if parent != neighbour}
        for search in self._searches.values():
            search.refused(neighbour)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        match message:
            case Invite(token):
                if self._context.is_in_mesh(token) or len(self._parents) >= self._tokens_max:
                    self._context.send(source, Decline(token))
                else:
                    self._parents[token] = source
            case Decline(token):
                if self._parents.get(token) == source:
                    del self._parents[token]
                elif token in self._searches:
                    self._searches[token].refused(source)
            case Subscribe(token):
                if token in self._searches:
                    self._searches[token].accepted(source)

    def beat(self, now: int) -> None:
        """Send the invitations that are due."""
        for token, search in self._searches.items():
            if search.due_us is None or search.due_us > now:
                continue
            at_once = len(search.order) if self._rule.rule == "each" else 1
            adjacent = self._context.mesh_neighbours(token)
            for neighbour in search.next(self._context.present_neighbours(), adjacent, at_once):
                self._context.send(neighbour, Invite(token))

    def size(self) -> int:
        return len(self._parents) + len(self._searches)

    def _draw(self) -> list[Address]:
        """The neighbours to ask, in order; none if the coin decides so."""
        order = self._context.present_neighbours()
        self._rng.shuffle(order)
        if self._rule.rule == "each":
            return [neighbour for neighbour in order if self._rng.random() < self._rule.mu]
        return order if self._rng.random() < self._rule.mu else []


class _CoverSearch:
    """The search for covers in one mesh: neighbours to ask, asked ones, and accepted ones."""

    __slots__ = ("_asked", "_remaining", "covers", "due_us", "order")

    def __init__(self, order: list[Address]) -> None:
        self.order = order
        self.covers: dict[Address, None] = {}
        self.due_us: int | None = None
        self._remaining: list[Address] = []
        self._asked: dict[Address, None] = {}

    def start(self, due_us: int) -> None:
        self.due_us = due_us
        self._remaining = list(self.order)

    def stop(self) -> list[Address]:
        dismissed = [*self.covers, *self._asked]
        self.due_us, self.covers, self._asked = None, {}, {}
        return dismissed

    def next(self, present: list[Address], adjacent: list[Address], at_once: int) -> list[Address]:
        """The neighbours to invite now, if enough of those asked have answered. Neighbours in the mesh are skipped."""
        invited = []
        while self._remaining and len(self._asked) + len(self.covers) < at_once:
            neighbour = self._remaining.pop(0)
            if neighbour in present and neighbour not in adjacent:
                self._asked[neighbour] = None
                invited.append(neighbour)
        if not self._remaining and not self._asked:
            self.due_us = None
        return invited

    def accepted(self, neighbour: Address) -> None:
        if neighbour in self._asked:
            del self._asked[neighbour]
            self.covers[neighbour] = None

    def refused(self, neighbour: Address) -> None:
        self._asked.pop(neighbour, None)
        self.covers.pop(neighbour, None)
