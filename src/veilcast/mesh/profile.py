"""Conduct: how a profile turns the owner's wishes into messages, behind one narrow interface.

`paper` and `hardened` share the node's rhythm, its neighbours, its tables and its inbox. They differ in where adverts
begin, how a publication gets into its mesh, and what a note must show to be passed on.
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
from veilcast.wire.mesh import Message, Notify

Deliver: TypeAlias = Callable[[str, Callable[[], NumberedPublication], int], None]
"""Opens a notification of a topic and hands it to the owner. Never raises: whether a node reads must show nowhere."""
"""Called with a topic, the content of a note of it, and now."""
Post: TypeAlias = Callable[[Sequence[Address], Message], None]
"""Sends a message to these, each in a frame of its own, at once."""


class ProfileContext(NamedTuple):
    """What a node hands its conduct at the start."""

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
    """The first relay that an earlier life recorded."""
    store_relay: StoreRelay
    now: int


class MeshProfile(Protocol):
    """Topics are names here; tokens are the conduct's own business."""

    def advertise(self, topic: str, now: int) -> None: ...

    def unadvertise(self, topic: str, now: int) -> None: ...

    def schema(self, topic: str, now: int) -> Schema:
        """What the topic declares now; `LocalError` if the keyring has no grant for it."""

    def draft(self, topic: str, publication: Publication, now: int) -> PendingPublication:
        """The publication as it will be sent; raises `LocalError` for what cannot be."""

    def send(self, record: int, letter: PendingPublication, now: int) -> None:
        """Send what is on the disk, as often as it takes, and settle it with the records when that is done."""

    def resume(self, record: int, letter: PendingPublication, now: int) -> None:
        """So too what an earlier life of the node did not settle."""

    def withdraw(self, record: int) -> None:
        """Send no letter of this record again."""

    def delay(self, members: int, now: int) -> Delay | None:
        """Why publications on the disk wait, in a network of so many members; None if none waits."""

    def subscribe(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        """The owner wants all that these match of a topic, and no more. Returns `ready_us`."""

    def ready_us(self, topic: str, now: int) -> int | None:
        """When what is published on a topic that the owner reads begins to reach it; None while that is unknown."""

    def unsubscribe(self, topic: str, now: int) -> None: ...

    def is_own_topic(self, notify: Notify) -> bool:
        """Whether it is of a topic that the owner reads or publishes."""

    def receive(self, message: Message, source: Address, now: int) -> None:
        """What came in a frame of its own; raises `RemoteError` for what we will not do."""

    def handle(self, message: Message, source: Address, now: int) -> None:
        """What rode in a heartbeat; raises `RemoteError` for what we will not do."""

    def on_neighbour_lost(self, neighbour: Address, now: int) -> None:
        """A neighbour is gone, and all that it told us."""

    def beat(self, now: int) -> None: ...

    def next_event(self) -> Event | None: ...

    def sizes(self) -> dict[str, int]:
        """How much each table of its own holds."""
