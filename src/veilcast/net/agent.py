"""What a running node offers its local clients: the seam between the control socket and a mode's machine and store.

The control server calls it, and nothing else does. Whoever fulfils it keeps two promises: `publish` returns when the
publication is on the disk, and a note is handed out again, to whoever asks for the notes of that subscription, until
`acknowledge` has returned for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from veilcast.machine import Delay

if TYPE_CHECKING:
    from veilcast.machine import Note, Publication
    from veilcast.topics import Conjunction


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node is, and how hidden its member."""

    mode: str
    profile: str
    members: int
    """How many there are in the group, this one included, as far as the node knows."""
    cover_share: float
    """The share of others that act as subscribers: the smallest among the topics this node reads."""
    neighbours: int
    member_until_us: int
    """When the membership ends, Unix time; the authority grants it anew."""
    subscriptions: int
    outbox: int
    """Publications that are on the disk, and not yet known to be with others."""
    overdue: int
    """Those among them that have waited for longer than they should; they are tried on."""
    inbox: int
    """Notes that no client has acknowledged."""
    refused: int
    """How often a note came for a subscription that had no room for it."""
    lapsed: int
    """Subscriptions that no grant of the keyring allows any more."""
    waiting: dict[int, int | None]
    """Subscriptions that get only what is published from some time on, Unix microseconds; None if that is unknown."""
    uptime_s: float
    draining: bool = False
    faults: int = 0
    """Messages and timers that veilcast itself failed on, and dropped: a bug, or an attack that found one."""
    hindrances: tuple[str, ...] = ()
    """What keeps the node from doing what it was asked for, in words for its owner; it goes on trying."""
    delay: Delay | None = None
    """Why the publications of the outbox wait, and about until when; None if there are none."""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One neighbour, for the eyes of the node's owner."""

    address: str
    up: bool
    since_s: float
    """How long it has been so."""
    reason: str = ""
    """Why it is down, where that is known."""


class Waiting(NamedTuple):
    """A subscription that gets only what is published later. `until_us` is from when on, in Unix microseconds; None if
    the node cannot say when."""

    until_us: int | None


class Agent(Protocol):
    async def publish(self, publication: Publication) -> None:
        """Returns when it is on the disk."""

    async def subscribe(self, interest: Conjunction, *, keep: bool) -> int:
        """Return the number of the subscription; the same one for the same interest.

        Without `keep` the subscription is temporary, unless a client asked to keep it before.
        """

    async def unsubscribe(self, number: int) -> None: ...

    def temporary(self) -> Collection[int]:
        """The subscriptions that end with their clients: no client has asked to keep them."""

    def readiness(self, number: int) -> AsyncGenerator[Waiting | None, None]:
        """Yield at once, and at each change, what a subscription waits for; None while what is published from now on
        reaches it. The generator ends with the subscription."""

    def notes(self, number: int) -> AsyncGenerator[Note, None]:
        """Each note of a subscription that is not acknowledged, once, oldest first, and then as they come."""

    async def acknowledge(self, number: int, note: bytes) -> None:
        """Returns when it is on the disk. Of an id that is not known, or acknowledged already, nothing more comes."""

    def status(self) -> Status: ...

    def peers(self) -> list[Peer]: ...

    async def finish(self) -> None:
        """Take no more publications; return when all that there are have been handed on."""
