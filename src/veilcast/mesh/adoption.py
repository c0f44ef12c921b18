"""Adoption: a peer that came to this node becomes one of the node's own links.

A node chooses its first relay among the links that it opened itself. An adversary decides which of its members come to
a node, and from where, but not which addresses the node draws. So a node adopts a peer that came in two cases only.

1. No other member is left: the node lacks own links, tries no address and knows no further one. It draws a peer from
   its book, like any other choice.
2. Need: for `NEED_PERIODS` heartbeats in a row some peer that came was heard, and no own link was. Meanwhile the node
   knocks at many addresses of its book. It draws a prefix among the older half of the peers that it hears: later peers
   never take the slots of that half (`slots`), so an adversary that floods the node is not in it. Without this case the
   node would wait for as long as its book or its contacts name dead addresses, although members are linked to it.

Claim: case 2 gives nothing to an adversary that can end a node's links, but cannot keep the node from new ones.
Reason: a try takes four heartbeats, or a few more, and the node begins its tries when it begins to count. A try that
succeeds gives an own link, and ends the need. Where the node hears no neighbour at all, the count begins anew: an
adversary that cuts the node off for some time, and comes first afterwards, has no head start.
What remains: an adversary that keeps a node from every address but those of insiders makes an insider an own link. It
needs no adoption for that: such a node can open links to insiders alone.
A node that has no first relay yet waits for `FIRST_NEED_PERIODS`: it has lost nothing, and chooses for long.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from veilcast.machine import Address
from veilcast.mesh.book import Book
from veilcast.mesh.knock_limits import PATIENCE_PERIODS
from veilcast.mesh.slots import Slots


class Adoption:
    """`watch` is called once for each heartbeat of the node's own."""

    def __init__(self, slots: Slots, book: Book, rng: Random) -> None:
        self._slots, self._book, self._rng = slots, book, rng
        self._beats, self._has_relay = 0, False
        self._heard: list[Address] = []

    @property
    def is_needy(self) -> bool:
        """Whether the node has a first relay, hears some peers that came, and hears no own link."""
        return self._has_relay and self._beats > 0

    def watch(self, is_fresh: Callable[[Address], bool], *, has_relay: bool) -> None:
        heard = {name: link.chosen for name, link in self._slots.links.items() if is_fresh(name)}
        self._heard = list(heard)
        self._beats = self._beats + 1 if heard and not any(heard.values()) else 0
        self._has_relay = has_relay

    def candidate(self, *, idle: bool) -> Address | None:
        """The peer to adopt now, if any. `idle`: the node tries no address now."""
        links = self._slots.links
        if idle:
            return self._book.choose(
                lambda name: name in links and not links[name].chosen and self._slots.may_choose(links[name].prefix)
            )
        if self._beats < (NEED_PERIODS if self._has_relay else FIRST_NEED_PERIODS):
            return None
        came = [name for name in self._heard if name in links and self._slots.may_choose(links[name].prefix)]
        by_prefix = {links[name].prefix: name for name in reversed(came[: max(1, len(came) // 2)])}
        return by_prefix[self._rng.choice(sorted(by_prefix))] if by_prefix else None


NEED_PERIODS: Final = PATIENCE_PERIODS
"""Heartbeats: the longest time that a try may take."""
FIRST_NEED_PERIODS: Final = 4 * NEED_PERIODS
