"""Joining a hardened mesh: in batches at epoch edges, behind permanent parents, among covers that look the same.

A parent learns from a subscription that a node at or below the child wants the topic, and when that node knew it. So:

1. All nodes with a reason of their own, and all relays of the previous epoch, ask at a random moment of a window that
   opens with the advertisement. A reason is a grant for the topic, used or not, or a draw that makes the node a cover
   for life. So to subscribe and to unsubscribe changes nothing that a neighbour sees, and no reason ever ends before
   the grant does.
2. A node that is first asked by a child follows a little later.
3. Inside an epoch no node joins for its own sake and no node leaves. A subscription that comes too late waits for the
   next epoch edge, and a relay that lost its children stays until then.
4. The parent is the first, in a permanent order, of the neighbours nearest to the root. A lost parent is replaced in
   the next slot.
5. When an epoch and its grace time are over, both ends forget its mesh by the clock, and no message is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

from veilcast.crypto.certificate import COVER_MAX
from veilcast.crypto.topic_token import lineage_of
from veilcast.machine import Address
from veilcast.mesh.config import HardeningConfig
from veilcast.mesh.hiding_policy import BaselinePolicy, MeshPosition, PolicyContext
from veilcast.mesh.roots import leading_origin
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.wire.base import Message
from veilcast.wire.mesh import Subscribe


class JoinContext(PolicyContext, Protocol):
    """The view of its node that the policy has, in addition to `PolicyContext`."""

    def is_subscribed(self, token: bytes) -> bool:
        """True if the node's owner subscribes to this topic."""

    def forget_topic(self, token: bytes) -> None:
        """Forget this topic, without a message."""


class BatchJoinPolicy(BaselinePolicy):
    """The policy of the hardened mesh. Bounded by the tokens that have routes."""

    def __init__(
        self,
        rules: HardeningConfig,
        context: JoinContext,
        choices: StickyChoices,
        holds_grant: Callable[[bytes, int], bool],
        *,
        period_us: int,
        epoch_us: int,
        rng: Random,
    ) -> None:
        super().__init__(context)
        self._context: JoinContext = context
        self._rules, self._choices, self._holds_grant, self._rng = rules, choices, holds_grant, rng
        self._period_us, self._epoch_us = period_us, epoch_us
        self._parts: dict[bytes, _MeshPart] = {}
        self._linked_us: int | None = None
        """Time since which the node has had a neighbour without a break."""

    def on_advert(self, token: bytes, now: int) -> None:
        """Decide once for each mesh, when its first advertisement comes, whether to join; and draw the moment."""
        best = leading_origin(self._context.reachable_origins(token))
        if token in self._parts or best is None:
            return
        leaf = best.advert.certificate.leaf
        lineage = lineage_of(best.advert.certificate, best.advert.cell)
        part = self._parts[token] = _MeshPart(lineage, leaf.first)
        covers = self._rules.covers and (
            self._holds_grant(leaf.lineage, leaf.first) or self._choices.is_cover(lineage, leaf.cover / COVER_MAX)
        )
        if covers or self._context.is_subscribed(token) or self._was_relay(part):
            part.joins_us = self._draw_time(self._rules.window_periods, now)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        super().on_message(message, source, now)
        if isinstance(message, Subscribe):
            part = self._parts.get(message.token)
            if part is not None and part.joins_us is None:
                part.joins_us = self._draw_time(self._rules.follow_periods, now)

    def position(self, token: bytes) -> MeshPosition | None:
        part = self._parts.get(token)
        if part is None:
            return None
        return MeshPosition(
            () if part.parent is None else (part.parent,), tuple(self._context.reachable_origins(token))
        )

    def on_neighbour_lost(self, neighbour: Address) -> None:
        for part in self._parts.values():
            if part.parent == neighbour:
                part.parent = None

    def beat(self, now: int) -> None:
        if not self._context.present_neighbours():
            self._linked_us = None
        elif self._linked_us is None:
            self._linked_us = now
        for token, part in list(self._parts.items()):
            if (part.epoch + 1) * self._epoch_us + self._rules.grace_periods * self._period_us <= now:
                del self._parts[token]
                self._context.forget_topic(token)
            elif part.joins_us is not None and part.joins_us <= now:
                self._update_parent(token, part, now)

    def ready_us(self, names: Iterable[tuple[bytes, bytes]], now: int) -> int | None:
        """Time from which publications on all of these topics, from this epoch on, reach this node; None if unknown.

        The names are lineages and tokens: each topic has a token in this epoch and in the next. A topic without an
        advertisement has no mesh. If this node has had neighbours for a window, which is longer than a flood, it would
        know of a mesh. So the next mesh of the topic forms later, this node joins it if it subscribes, and its root
        holds notifications until the mesh has formed. Without neighbours for that long, the time is unknown.
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
        """Time at which this node is in a mesh with one of these tokens; None while no advertisement has come.

        Whether this node joins a mesh was decided when the mesh began to form, and also for the next mesh if that has
        begun. A node that joins neither waits for the one after.
        """
        edge_us = None
        for part in (self._parts[token] for token in tokens if token in self._parts):
            if part.joins_us is not None:
                return max(now, part.joins_us, part.epoch * self._epoch_us)
            edge_us = (part.epoch + 1) * self._epoch_us
        return edge_us

    def size(self) -> int:
        return len(self._parts)

    def _was_relay(self, part: _MeshPart) -> bool:
        """True if a child depended on this node in this lineage in the previous epoch."""
        return any(
            other.lineage == part.lineage and other.epoch == part.epoch - 1 and self._context.branches.outward(token)
            for token, other in self._parts.items()
        )

    def _update_parent(self, token: bytes, part: _MeshPart, now: int) -> None:
        """Take a parent on a way to the leading root: the first at once, a replacement only in the next slot."""
        best = leading_origin(self._context.reachable_origins(token))
        if best is not None and part.parent is not None and best.is_safe_via(part.parent):
            part.repair_us = None
        elif best is None or best.is_own:
            self._set_parent(token, part, None, now)
        elif not part.has_joined or (part.repair_us is not None and part.repair_us <= now):
            self._set_parent(token, part, best.via, now)
        elif part.repair_us is None:
            part.repair_us = self._draw_time(self._rules.repair_periods, now)

    def _set_parent(self, token: bytes, part: _MeshPart, parent: Address | None, now: int) -> None:
        if parent is not None:
            part.has_joined, part.repair_us = True, None
        if parent != part.parent:
            part.parent = parent
            self._context.reconcile(token, now)

    def _draw_time(self, periods: int, now: int) -> int:
        return now + self._rng.randrange(periods * self._period_us)


class _MeshPart:
    """This node's part in one mesh: when it joins, if at all, whether it has, its parent, and when it looks for
    another."""

    __slots__ = ("epoch", "has_joined", "joins_us", "lineage", "parent", "repair_us")

    def __init__(self, lineage: bytes, epoch: int) -> None:
        self.lineage, self.epoch = lineage, epoch
        self.joins_us: int | None = None
        self.parent: Address | None = None
        self.repair_us: int | None = None
        self.has_joined = False
