"""Conduct: how a profile turns the owner's wishes into messages, behind one narrow interface.

`paper` and `hardened` share the node's rhythm, its neighbours, its tables and its inbox. They differ in where adverts
begin, how a publication gets into its mesh, and what a note must show to be passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.authority.content import Content
from veilcast.authority.keyring import Keyring
from veilcast.authority.letters import Letter, Records
from veilcast.machine import Address, Delay, Entropy, Event, Publication
from veilcast.mesh.config import Config
from veilcast.mesh.first_relay import Keep
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.membership import Membership
from veilcast.mesh.neighbour_record import RelayRecord
from veilcast.topics import Conjunction, Schema
from veilcast.wire.messages import Message, Notify

Deliver: TypeAlias = Callable[[str, Callable[[], Content], int], None]
"""Opens a notification of a topic and hands it to the owner. Never raises: whether a node reads must show nowhere."""
"""Called with a topic, the content of a note of it, and now."""
Post: TypeAlias = Callable[[Sequence[Address], Message], None]
"""Sends a message to these, each in a frame of its own, at once."""


class Outfit(NamedTuple):
    """What a node hands its conduct at the start."""

    config: Config
    keyring: Keyring
    members: Membership
    beats: Heartbeats
    rng: Random
    entropy: Entropy
    post: Post
    deliver: Deliver
    records: Records
    kept: RelayRecord | None
    """The first relay that an earlier life recorded."""
    keep: Keep
    now: int


class Conduct(Protocol):
    """Topics are names here; tokens are the conduct's own business."""

    def advertise(self, topic: str, now: int) -> None: ...

    def unadvertise(self, topic: str, now: int) -> None: ...

    def schema(self, topic: str, now: int) -> Schema:
        """What the topic declares now; `LocalError` if the keyring has no grant for it."""

    def draft(self, topic: str, publication: Publication, now: int) -> Letter:
        """The publication as it will be sent; raises `LocalError` for what cannot be."""

    def send(self, record: int, letter: Letter, now: int) -> None:
        """Send what is on the disk, as often as it takes, and settle it with the records when that is done."""

    def recall(self, record: int, letter: Letter, now: int) -> None:
        """So too what an earlier life of the node did not settle."""

    def withdraw(self, record: int) -> None:
        """Send no letter of this record again."""

    def delay(self, members: int, now: int) -> Delay | None:
        """Why publications on the disk wait, in a network of so many members; None if none waits."""

    def read(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        """The owner wants all that these match of a topic, and no more. Returns `ready_us`."""

    def ready_us(self, topic: str, now: int) -> int | None:
        """When what is published on a topic that the owner reads begins to reach it; None while that is unknown."""

    def unread(self, topic: str, now: int) -> None: ...

    def concerns(self, notify: Notify) -> bool:
        """Whether it is of a topic that the owner reads or publishes."""

    def receive(self, message: Message, source: Address, now: int) -> None:
        """What came in a frame of its own; raises `RemoteError` for what we will not do."""

    def act(self, message: Message, source: Address, now: int) -> None:
        """What rode in a heartbeat; raises `RemoteError` for what we will not do."""

    def lost(self, neighbour: Address, now: int) -> None:
        """A neighbour is gone, and all that it told us."""

    def beat(self, now: int) -> None: ...

    def next_event(self) -> Event | None: ...

    def sizes(self) -> dict[str, int]:
        """How much each table of its own holds."""
