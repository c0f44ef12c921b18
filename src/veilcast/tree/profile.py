"""The interface between a node and its profile: how instructions are made and stored, and where a message goes next.

`hardened` and `paper` are the two profiles; a node keeps one for its lifetime.
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
"""Deliver a publication of this topic that may match these interests."""


class TreeProfileContext(NamedTuple):
    """The dependencies that a node gives its profile."""

    config: TreeConfig
    keyring: Keyring
    home: bytes
    """The name of this node."""
    streams: RequestStreams
    hops: HopQueue
    address_of: FindAddress
    deliver: Deliver
    on_error: Callable[[Exception], None]
    """Receives errors of messages that could not be delivered here."""
    rng: Random
    entropy: Entropy
    now: int
    records: Mapping[int, bytes]
    """Records of an earlier run."""


class TreeProfile(Protocol):
    """All methods that read remote input raise `RemoteError`; the node then answers only that it refused."""

    @property
    def copies(self) -> int:
        """Number of origins that receive a publication."""

    def schema(self, topic: str, now: int) -> Schema:
        """The topic's current schema; `LocalError` if the keyring has no grant for it."""

    def build_offer(self, pending: PendingPublication, now: int) -> Offer:
        """The publication as it leaves now, under a fresh message id; `LocalError` if it cannot be published."""

    def install(self, install: Install, now: int) -> None: ...

    def offer(self, offer: Offer, now: int) -> int:
        """Match a publication. Returns the number of copies that are charged to the stream it arrived on."""

    def forward(self, carry: ForwardPublication, now: int) -> None: ...

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Add a subscription; `LocalError` for one that can never be granted."""

    def remove(self, number: int, now: int) -> None: ...

    def update_listing(self, listing: Listing, now: int) -> None:
        """There is a new listing."""

    def next_us(self) -> int | None: ...

    def handle(self, now: int) -> None: ...

    def next_event(self) -> Event | None: ...

    def sizes(self) -> dict[str, int]: ...
