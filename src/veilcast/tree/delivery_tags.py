"""Delivery tags: the entry names under which messages arrive at a subscriber, at the end of their path.

The tag of an interest's trees in an epoch is derived from the secret of the membership. So it is the same in all runs
of a node. A restarted node receives messages on the trees of its earlier run before it has installed any itself, and
its guards notice no difference. All names on the guard chain therefore stay the same for an epoch: a guard with a new
name for itself and the old one for its parent would know that its parent is the subscriber.

A tag also outlasts its interest. The subscriber accepts and drops messages for a withdrawn interest, so that nothing
changes for an observer. The tag expires with the last entry of its trees, and not later: after that, a node that sends
to its parent is refused, whether or not the parent is the subscriber.
"""

from __future__ import annotations

from typing import NamedTuple

from veilcast.core.bounded import BoundedMap
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
    """Bounded: the last `most` tags."""

    def __init__(self, link: Secret, epoch_us: int, most: int) -> None:
        self._key, self._epoch_us = derive(link, b"vc/tree-ends"), epoch_us
        self._tags: BoundedMap[bytes, DeliveryTag] = BoundedMap(most)
        self._timers: Timers[bytes] = Timers()

    def __len__(self) -> int:
        return len(self._tags)

    def open(self, shared: SharedInterest, epoch: int) -> bytes:
        """The tag of this interest's trees in this epoch; messages under it are accepted until the trees expire."""
        name = entry_name(derive(self.chain_secret(shared, epoch), b"vc/tree-end", size=ENTRY).reveal())
        self._tags.renew(name, DeliveryTag(shared, epoch))
        self._timers.set(name, self._expiry_us(epoch))
        return name

    def chain_secret(self, shared: SharedInterest, epoch: int) -> Secret:
        """The secret from which the names on the chain to this tag are derived."""
        return derive(self._key, b"vc/tree-hung", shared.key, epoch.to_bytes(8, "big"))

    def get(self, name: bytes, now: int) -> DeliveryTag | None:
        tag = self._tags.get(name)
        return None if tag is None or self._expiry_us(tag.epoch) <= now else tag

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for name in self._timers.pop_due(now):
            self._tags.pop(name, None)

    def _expiry_us(self, epoch: int) -> int:
        return (epoch + 2) * self._epoch_us
