"""The hardened forwarder: stores instructions, matches offered publications, and forwards messages.

An instruction arrives in a layer that only this node can open, together with the layers of other nodes, which are
passed on. A publication is matched once, by the origin that its publisher chose. From there on each copy is addressed
to one entry of the next node's table, and the node learns nothing more about it. A message that arrives again under the
same entry is acknowledged and dropped, so nothing can circulate. If an entry is redirected, messages that wait for its
former parent also go to the new one.

Installers are anonymous, and one installer can install many entries with one tag. So an origin bounds the copies of one
offer by the size of the listing (`trees_each`), and those of all offers by a rate. If more entries match, the origin
draws among them: an installer of many entries lowers the chance of the others, and causes no more copies. An entry that
is redirected repeatedly makes one copy of a message for each node that it is redirected to, and these copies count,
too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.core.bounded import BoundedMap
from veilcast.core.rate_limit import TokenBucket
from veilcast.crypto.derive import digest
from veilcast.crypto.noise import Keypair
from veilcast.errors import ExcessError, MalformedError, StaleError
from veilcast.tree.config import TreeConfig
from veilcast.tree.hop_queue import HopQueue
from veilcast.tree.instruction_bundles import open_layer
from veilcast.tree.membership_proof import MembershipProver, bundle_context
from veilcast.tree.routing_table import RoutingEntry, RoutingTable
from veilcast.wire.geometry import INSTALL_BLOCK, NOTE_ID
from veilcast.wire.padding import pad, unpad
from veilcast.wire.tree import ForwardPublication, Install, Offer


class Forwarder:
    """Bounded: `entries_max` entries, and `seen_max` messages that are recognised when they arrive again."""

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        hop_queue: HopQueue,
        arrive: Callable[[ForwardPublication, int], bool],
        rng: Random,
    ) -> None:
        """`arrive` accepts a message that has reached the end of its path, and returns whether it had."""
        self._config, self._hop_queue, self._arrive, self._rng = config, hop_queue, arrive, rng
        self._copies = TokenBucket(config.copies_every_us, config.copies_burst)
        self.listed_count = 0
        """Nodes in the listing."""
        self._epoch_us = keyring.epoch_us
        self._box = Keypair(keyring.membership.link)
        self._prover = MembershipProver(keyring)
        self._entries = RoutingTable(entries_max=config.entries_max, columns_max=config.columns_max)
        self._seen: BoundedMap[tuple[bytes, bytes], None] = BoundedMap(config.seen_max)

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    @property
    def seen_count(self) -> int:
        return len(self._seen)

    def install(self, install: Install, now: int) -> None:
        """Store the instruction for this node, and pass the rest on; raises `RemoteError`."""
        self._prover.check(install)
        if install.removes or len(install.sealed) != INSTALL_BLOCK:
            raise MalformedError("not an instruction of the hardened profile")
        if not now < install.until_us <= (epoch_of(now, self._epoch_us) + EPOCHS_AHEAD) * self._epoch_us:
            raise StaleError("the instruction has expired or ends too late")
        mark = digest(install.sealed, purpose=b"vc/tree-told", size=NOTE_ID)
        if (_INSTALLED, mark) in self._seen:
            return  # Otherwise a replay would make all later nodes of the group pass it on again.
        layer = open_layer(self._box, unpad(install.sealed), context=bundle_context(install.until_us, install.groups))
        with suppress(StaleError):  # This node has a newer instruction; the later nodes of the group may have none.
            entry = self._entries.put(layer.instruction, install.groups, install.until_us)
            self._redirect(entry, now)
        self._remember(_INSTALLED, mark)
        for child, bundle in layer.children:
            onward = msgspec.structs.replace(install, number=0, sealed=pad(bundle, INSTALL_BLOCK), proof=None)
            self._hop_queue.send(child, self._prover.prove(onward), now)

    def offer(self, offer: Offer, now: int) -> int:
        """Match a publication, and send a copy along each matching tree. Returns the number of copies. Raises
        `RemoteError`."""
        self._prover.check(offer)
        if offer.labels is not None:
            raise MalformedError("not an offer of the hardened profile")
        if (_OFFERED, offer.message) in self._seen:
            return 0
        matched = self._entries.match([tag for group in offer.groups for tag in group])
        most = min(max(COPIES_LEAST, self._config.trees_each * self.listed_count), self._config.copies_burst)
        if len(matched) > most:
            self._hop_queue.dropped += len(matched) - most
            matched = self._rng.sample(matched, most)
        if not self._copies.take(now, len(matched)):
            raise ExcessError("the origin exceeds its rate of copies")
        self._remember(_OFFERED, offer.message)
        for entry in matched:
            self._forward_copy(entry, offer.message, offer.body, now)
        return len(matched)

    def forward(self, carry: ForwardPublication, now: int) -> None:
        """Forward the message as its entry says; `StaleError` for an unknown entry."""
        if (carry.entry, carry.message) in self._seen:
            return
        entry = None
        if not self._arrive(carry, now):
            entry = self._entries.get(carry.entry)
            if entry is None or entry.until_us <= now:
                raise StaleError("the entry is unknown")
            if not self._hop_queue.has_room(entry.parent):
                raise ExcessError("too many messages wait for this parent")
        self._remember(carry.entry, carry.message)
        if entry is not None:
            self._forward_copy(entry, carry.message, carry.body, now)

    def next_us(self) -> int | None:
        return self._entries.next_us()

    def handle(self, now: int) -> None:
        self._entries.expire(now)

    def _redirect(self, entry: RoutingEntry, now: int) -> None:
        """Also send the messages that wait for the entry's former parents to its present one, within the rate of all
        copies."""
        waiting = self._hop_queue.waiting_under(entry.name, entry.parent)
        if not self._copies.take(now, len(waiting)):
            self._hop_queue.dropped += len(waiting)
            return
        for message_held in waiting:
            self._forward_copy(entry, message_held.message, message_held.body, now)

    def _forward_copy(self, entry: RoutingEntry, message: bytes, body: bytes, now: int) -> None:
        """Send to the entry's parent, which may be this node itself: a guard may be the root of the tree that hangs
        from it."""
        self._hop_queue.send(
            entry.parent, ForwardPublication(0, entry.parent_entry, message, body), now, entry=entry.name
        )

    def _remember(self, entry: bytes, message: bytes) -> None:
        self._seen.renew((entry, message), None)


_OFFERED: Final = b""
"""Stands for the entry of an offer in `_seen`."""
_INSTALLED: Final = b"install"
"""Stands for the entry of an instruction in `_seen`."""
COPIES_LEAST: Final = 64
"""Copies of one offer that are allowed in the smallest network."""
EPOCHS_AHEAD: Final = 4
"""No entry lasts longer than to the end of the epoch after the next, and one epoch of grace."""
