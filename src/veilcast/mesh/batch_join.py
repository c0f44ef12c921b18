"""Joining a hardened mesh: in batches at epoch edges, behind parents that are kept, among covers that look the same.

What a parent learns from a subscription is that somebody at or below the child wants the topic, and when that was
known. So everybody with a reason of its own, reader and cover alike, and everybody who was a relay in the epoch before,
asks at one random moment of a window that opens with the advert; a node that is first asked by a child follows a little
later. Inside an epoch nobody joins for its own sake and nobody leaves: who wants the topic too late waits for the next
edge, and a relay that lost its children stays until then. The parent is the first in a life-long order of the
neighbours nearest to the root; one that is lost is replaced in the next slot. When an epoch and its grace are over,
both ends forget its mesh by the clock, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Protocol

from veilcast.crypto.topic_token import lineage_of
from veilcast.machine import Address
from veilcast.mesh.config import HardeningConfig
from veilcast.mesh.hiding_policy import BaselinePolicy, MeshPosition, PolicyContext
from veilcast.mesh.roots import leading_origin
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.wire.mesh import Message, Subscribe


class JoinContext(PolicyContext, Protocol):
    """What joining sees and does besides."""

    def is_subscribed(self, token: bytes) -> bool:
        """Whether the node's owner wants this topic."""

    def forget_topic(self, token: bytes) -> None:
        """Forget all about this topic, and say nothing."""


class BatchJoinPolicy(BaselinePolicy):
    """The policy of the hardened mesh; bounded by the tokens that there are routes for."""

    def __init__(
        self,
        rules: HardeningConfig,
        seat: JoinContext,
        habits: StickyChoices,
        *,
        period_us: int,
        epoch_us: int,
        rng: Random,
    ) -> None:
        super().__init__(seat)
        self._seat: JoinContext = seat
        self._rules, self._habits, self._rng = rules, habits, rng
        self._period_us, self._epoch_us = period_us, epoch_us
        self._parts: dict[bytes, _MeshPart] = {}
        self._linked_us: int | None = None
        """Since when we have had a neighbour without a break."""

    def on_advert(self, token: bytes, now: int) -> None:
        """Decide once for each mesh, when its first advert comes, whether to be in it; and draw the moment."""
        best = leading_origin(self._seat.reachable_origins(token))
        if token in self._parts or best is None:
            return
        leaf = best.advert.certificate.leaf
        lineage = lineage_of(best.advert.certificate, best.advert.cell)
        part = self._parts[token] = _MeshPart(lineage, leaf.first)
        covers = self._rules.covers and self._habits.is_cover(lineage, leaf.first, leaf.cover / 1000)
        if self._seat.is_subscribed(token) or covers or self._relayed(part):
            part.joins_us = self._slot(self._rules.window_periods, now)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        super().on_message(message, source, now)
        if isinstance(message, Subscribe):
            part = self._parts.get(message.token)
            if part is not None and part.joins_us is None:
                part.joins_us = self._slot(self._rules.follow_periods, now)

    def position(self, token: bytes) -> MeshPosition | None:
        part = self._parts.get(token)
        if part is None:
            return None
        return MeshPosition(() if part.parent is None else (part.parent,), tuple(self._seat.reachable_origins(token)))

    def on_neighbour_lost(self, neighbour: Address) -> None:
        for part in self._parts.values():
            if part.parent == neighbour:
                part.parent = None

    def beat(self, now: int) -> None:
        if not self._seat.present_neighbours():
            self._linked_us = None
        elif self._linked_us is None:
            self._linked_us = now
        for token, part in list(self._parts.items()):
            if (part.epoch + 1) * self._epoch_us + self._rules.grace_periods * self._period_us <= now:
                del self._parts[token]
                self._seat.forget_topic(token)
            elif part.joins_us is not None and part.joins_us <= now:
                self._follow(token, part, now)

    def ready_us(self, names: Iterable[tuple[bytes, bytes]], now: int) -> int | None:
        """When what is published on all of these topics, from this epoch on, begins to reach us; None if unknown.

        The names are lineages and tokens: each topic has a token in this epoch and in the next. A topic that nobody
        advertises has no mesh. If we have had neighbours for a window, longer than a flood takes, we would know of a
        mesh. So the next mesh of the topic forms later, and we are in it if we read the topic; and its root holds
        notes back until the mesh stands. Without neighbours for so long, we cannot say.
        """
        is_settled = (
            self._linked_us is not None and now - self._linked_us > self._rules.window_periods * self._period_us
        )
        topics: dict[bytes, list[bytes]] = {}
        for lineage, token in names:
            topics.setdefault(lineage, []).append(token)
        found = [self._joined_us(tokens, now) for tokens in topics.values()]
        known = [until_us for until_us in found if until_us is not None]
        if len(known) < len(found):
            return max([now, *known]) if is_settled else None
        return max(known, default=None)

    def _joined_us(self, tokens: Iterable[bytes], now: int) -> int | None:
        """When we are in a mesh with one of these tokens; None while nobody advertises one.

        Whether we are in a mesh was decided when it began to form, and for the next one too if it has; who is in
        neither waits for the one after.
        """
        edge_us = None
        for part in (self._parts[token] for token in tokens if token in self._parts):
            if part.joins_us is not None:
                return max(now, part.joins_us, part.epoch * self._epoch_us)
            edge_us = (part.epoch + 1) * self._epoch_us
        return edge_us

    def size(self) -> int:
        return len(self._parts)

    def _relayed(self, part: _MeshPart) -> bool:
        """Whether somebody hung on us in this lineage in the epoch before."""
        return any(
            other.lineage == part.lineage and other.epoch == part.epoch - 1 and self._seat.branches.outward(token)
            for token, other in self._parts.items()
        )

    def _follow(self, token: bytes, part: _MeshPart, now: int) -> None:
        """Have a parent on a way to the leading root: the first at once, another only in the next slot."""
        best = leading_origin(self._seat.reachable_origins(token))
        if best is not None and part.parent is not None and best.is_safe_via(part.parent):
            part.repair_us = None
        elif best is None or best.is_own:
            self._adopt(token, part, None, now)
        elif not part.has_joined or (part.repair_us is not None and part.repair_us <= now):
            self._adopt(token, part, best.via, now)
        elif part.repair_us is None:
            part.repair_us = self._slot(self._rules.repair_periods, now)

    def _adopt(self, token: bytes, part: _MeshPart, parent: Address | None, now: int) -> None:
        if parent is not None:
            part.has_joined, part.repair_us = True, None
        if parent != part.parent:
            part.parent = parent
            self._seat.reconcile(token, now)

    def _slot(self, periods: int, now: int) -> int:
        return now + self._rng.randrange(periods * self._period_us)


class _MeshPart:
    """Our part in one mesh: when we join, if at all, whether we did, our parent, and when we look for another."""

    __slots__ = ("epoch", "has_joined", "joins_us", "lineage", "parent", "repair_us")

    def __init__(self, lineage: bytes, epoch: int) -> None:
        self.lineage, self.epoch = lineage, epoch
        self.joins_us: int | None = None
        self.parent: Address | None = None
        self.repair_us: int | None = None
        self.has_joined = False
