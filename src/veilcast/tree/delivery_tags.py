"""Ends: the names under which things come to a subscriber, when they have come all the way.

The end of a wish's trees in an epoch comes from the secret of the membership. So it is the same in all lives of a node:
one that starts anew gets what its earlier life planted, before it has planted anything itself, and its guards find no
difference. For these all names on the chain stay the same for an epoch: one that were told a new name of its own, and
the old one for its parent, would know that its parent is the end.

An end outlasts the wish, too: what still comes for one that was given up is taken and dropped, as from the outside it
is for everything. It is over when all entries of its trees are, and not later: who sends something to its parent then
is refused, whoever that is.
"""

from __future__ import annotations

from typing import NamedTuple

from veilcast.core.bounded import remember
from veilcast.core.subscriptions import SharedInterest
from veilcast.core.timers import Timers
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.tree.routing_table import entry_name
from veilcast.wire.geometry import ENTRY


class DeliveryTag(NamedTuple):
    interest: SharedInterest
    epoch: int


class DeliveryTags:
    """Bounded: the last `most`."""

    def __init__(self, link: Secret, epoch_us: int, most: int) -> None:
        self._key, self._epoch_us, self._most = derive(link, b"vc/tree-ends"), epoch_us, most
        self._ends: dict[bytes, DeliveryTag] = {}
        self._alarms: Timers[bytes] = Timers()

    def __len__(self) -> int:
        return len(self._ends)

    def open(self, wish: SharedInterest, epoch: int) -> bytes:
        """The end of this wish's trees in this epoch; what comes there is taken from now on, until they are over."""
        name = entry_name(derive(self.chain_secret(wish, epoch), b"vc/tree-end", size=ENTRY).reveal())
        remember(self._ends, name, DeliveryTag(wish, epoch), self._most)
        self._alarms.set(name, self._over_us(epoch))
        return name

    def chain_secret(self, wish: SharedInterest, epoch: int) -> Secret:
        """What the names on the chain to this end come from."""
        return derive(self._key, b"vc/tree-hung", wish.key, epoch.to_bytes(8, "big"))

    def get(self, name: bytes, now: int) -> DeliveryTag | None:
        end = self._ends.get(name)
        return None if end is None or self._over_us(end.epoch) <= now else end

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for name in self._alarms.pop_due(now):
            self._ends.pop(name, None)

    def _over_us(self, epoch: int) -> int:
        return (epoch + 2) * self._epoch_us
