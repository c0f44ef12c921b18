"""The interface of a profile: how the owner's calls become messages.

`paper` and `hardened` share the node's heartbeat, neighbours, tables and inbox. They differ in where advertisements
begin, how a publication enters its mesh, and what a notification must show to be forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.core.outbox import Outbox, PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.machine import Address, Delay, Entropy, Event, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.first_relay import StoreRelay
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.neighbour_record import RelayRecord
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.topics import Conjunction, Schema
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify

Deliver: TypeAlias = Callable[[str, Callable[[], NumberedPublication], int], None]
"""Opens a notification of a topic and delivers it to the owner at time `now`. Never raises: a neighbour must not notice
whether a node subscribes."""
Post: TypeAlias = Callable[[Sequence[Address], Message], None]
"""Sends a message to each of these neighbours at once, in a frame of its own."""


class ProfileContext(NamedTuple):
    """The objects of its node that a profile uses."""

    config: MeshConfig
    keyring: Keyring
    members: NeighbourTable
    beats: Heartbeats
    rng: Random
    entropy: Entropy
    post: Post
    deliver: Deliver
    records: Outbox
    stored_relay: RelayRecord | None
    """The first relay that an earlier run stored."""
    store_relay: StoreRelay
    now: int


class MeshProfile(Protocol):
    """Topics are names here. Tokens are internal to the profile."""

    def advertise(self, topic: str, now: int) -> None: ...

    def unadvertise(self, topic: str, now: int) -> None: ...

    def schema(self, topic: str, now: int) -> Schema:
        """The topic's current schema; raises `LocalError` if the keyring has no grant for it."""

    def draft(self, topic: str, publication: Publication, now: int) -> PendingPublication:
        """The publication as it will be sent; raises `LocalError` if it cannot be sent."""

    def send(self, record: int, pending: PendingPublication, now: int) -> None:
        """Send a durable publication as often as necessary, and settle its record when it is confirmed."""

    def resume(self, record: int, pending: PendingPublication, now: int) -> None:
        """The same for a publication that an earlier run did not settle."""

    def withdraw(self, record: int) -> None:
        """Stop sending the publications of this record."""

    def delay(self, members: int, now: int) -> Delay | None:
        """Why durable publications wait, in a network of `members` members; None if none waits."""

    def subscribe(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        """Replace the interests of the owner in a topic. Returns `ready_us`."""

    def ready_us(self, topic: str, now: int) -> int | None:
        """Time from which publications on a subscribed topic reach the owner; None while that is unknown."""

    def unsubscribe(self, topic: str, now: int) -> None: ...

    def is_own_topic(self, notify: Notify) -> bool:
        """True if the owner subscribes to or publishes on the topic of the notification."""

    def receive(self, message: Message, source: Address, now: int) -> None:
        """Handle a message that came in its own frame. Raises `RemoteError` if it is refused."""

    def handle(self, message: Message, source: Address, now: int) -> None:
        """Handle a message that came in a heartbeat. Raises `RemoteError` if it is refused."""

    def on_neighbour_lost(self, neighbour: Address, now: int) -> None:
        """Forget a neighbour, and everything that it told this node."""

    def beat(self, now: int) -> None: ...

    def next_event(self) -> Event | None: ...

    def sizes(self) -> dict[str, int]:
        """Number of entries of each of the profile's own tables."""
