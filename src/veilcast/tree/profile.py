"""What a node leaves to its profile: how instructions are made and kept, and whom a message goes on to.

`hardened` and `paper` are the two; a node has one of them for all its life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.core.subscriptions import SharedInterest
from veilcast.machine import Entropy, Event
from veilcast.topics import Conjunction, Schema
from veilcast.tree.config import TreeConfig
from veilcast.tree.hop_queue import FindAddress, HopQueue
from veilcast.tree.listing import Listing
from veilcast.tree.streams import RequestStreams
from veilcast.wire.tree import ForwardPublication, Install, Offer

Deliver: TypeAlias = Callable[[str, NumberedPublication, Iterable[SharedInterest], int], None]
"""Something of this topic has come that may be for these."""


class TreeProfileContext(NamedTuple):
    """What a node hands its profile at the start."""

    config: TreeConfig
    keyring: Keyring
    home: bytes
    """What the node is called."""
    streams: RequestStreams
    hops: HopQueue
    address_of: FindAddress
    deliver: Deliver
    on_error: Callable[[Exception], None]
    """Told of what came and was not for us."""
    rng: Random
    entropy: Entropy
    now: int
    records: Mapping[int, bytes]
    """Of an earlier life."""


class TreeProfile(Protocol):
    """All that take what others sent raise `RemoteError`; nothing is answered then but that it was refused."""

    @property
    def copies(self) -> int:
        """How many origins get a publication."""

    def schema(self, topic: str, now: int) -> Schema:
        """What the topic declares now; `LocalError` if the keyring has no grant for it."""

    def build_offer(self, letter: PendingPublication, now: int) -> Offer:
        """As it leaves now, under a name that was never used; `LocalError` if it cannot."""

    def install(self, install: Install, now: int) -> None: ...

    def offer(self, offer: Offer, now: int) -> int:
        """Match a publication. Returns the number of copies that are charged to the stream it came on."""

    def forward(self, carry: ForwardPublication, now: int) -> None: ...

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Take up a subscription; `LocalError` for one that could never be granted."""

    def remove(self, number: int, now: int) -> None: ...

    def update_listing(self, listing: Listing, now: int) -> None:
        """There is a new listing."""

    def next_us(self) -> int | None: ...

    def handle(self, now: int) -> None: ...

    def next_event(self) -> Event | None: ...

    def sizes(self) -> dict[str, int]: ...
