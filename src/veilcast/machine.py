"""The contract that every role of every mode fulfils: a machine without I/O.

Three things move a machine: bytes that arrive, a timer that is due, and a call of its owner. It answers with frames to
send, one next deadline, and events. It holds no socket, no clock and no source of randomness of its own: time comes in
as `now`, randomness as the `rng` and `entropy` it was built with. So the network and the simulator drive the very same
object with the very same bytes, and the seed decides a run.

`now` is Unix time in integer microseconds and never goes back; the driver ensures that. Calls with nothing to do are
harmless: a spurious `handle_timer` or an empty `frames_to_send` changes nothing.

How a driver runs a machine, after every call that may have changed it:

    for frame in machine.frames_to_send(now, limit): send(frame)
    while (event := machine.next_event()) is not None: act_on(event)
    arm_one_timer(machine.next_timer())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType, Protocol, TypeAlias, runtime_checkable

import msgspec

Address = NewType("Address", str)
"""An opaque name of a peer. Machines compare it and never parse it. Each inbound stream has its own if the sender is
hidden.
"""

Entropy: TypeAlias = Callable[[int], bytes]
"""Returns this many bytes fit for keys: from the system's generator in production, from a seeded one in the
simulator.
"""

Value: TypeAlias = int | float | str
"""The value of an attribute of a publication."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Bytes for one peer: a datagram on UDP, a length-prefixed record on a stream, an entry in a simulated queue."""

    destination: Address
    data: bytes


class Machine(Protocol):
    """The five methods. A driver knows nothing else, except the notices of `Peers` and `Durable`."""

    def receive(self, data: bytes, source: Address, now: int) -> None:
        """Take bytes of a peer. Never raises, whatever a stranger sent."""

    def handle_timer(self, now: int) -> None:
        """Do what is due at `now`."""

    def next_timer(self) -> int | None:
        """The next deadline for `handle_timer`; None for never."""

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        """Hand over at most `limit` frames; the rest stays queued."""

    def next_event(self) -> Event | None:
        """Hand over one event; None when there is none."""


class Peers(Protocol):
    """The notices of a driver whose peers come and go (streams; a link layer below)."""

    def peer_up(self, peer: Address, now: int) -> None: ...

    def peer_lost(self, peer: Address, now: int) -> None: ...


class Durable(Protocol):
    """The notice of a driver with a disk: the bytes of a `Record` are safe now, and what relies on them may leave or be
    acknowledged.

    Such a driver gives a machine's next life all records that were stored and not `Settled`, by their numbers.
    """

    def stored(self, record: int, now: int) -> None: ...


@runtime_checkable
class Departing(Protocol):
    """A machine that takes its leave of its neighbours before it stops."""

    def leave(self, now: int) -> None:
        """Tell the neighbours. The event `Left` follows; then the owner stops the machine."""


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a publisher submits: attribute-value pairs to match on, and a body.

    Attributes may repeat (P2, section 3).
    """

    pairs: tuple[tuple[str, Value], ...]
    body: bytes = b""


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notification: a publication as a subscriber gets it.

    The id is the same on every delivery, until it is acknowledged.
    """

    id: bytes
    publication: Publication


class Delay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why publications that are on the disk are not with their subscribers yet. Only the publisher sees it.

    `until_us` is an estimate, in Unix microseconds, of when subscribers have the last of them; None if it depends on
    something that may never happen.
    """

    reason: str
    until_us: int | None = None


class Interest(Protocol):
    """What a subscriber wants: a label, a range, a box, or several at once (see `veilcast.topics`)."""

    def matches(self, publication: Publication) -> bool: ...


class Member(Machine, Protocol):
    """The calls of a member's machine for its owner, in every mode; all that clients and commands use."""

    def publish(self, publication: Publication, now: int) -> int:
        """Take a publication, and return the number of the `Record` that asks the driver to store it.

        When the record is stored, the publication is safe, and leaves. Raises `LocalError` for a publication that
        cannot be sent, or if too many wait.
        """

    def withdraw(self, record: int, now: int) -> None:
        """Stop trying to send the publication of this record. Subscribers that have it already keep it."""

    def subscribe(self, interest: Interest, now: int) -> int:
        """Start a subscription and return its number."""

    def unsubscribe(self, number: int, now: int) -> None: ...

    def acknowledge(self, note: bytes, now: int) -> None:
        """The client has the notification of this id; deliver it no more."""


class Event(msgspec.Struct, frozen=True):
    """The base of everything a machine tells or asks its driver."""


class Connect(Event, frozen=True):
    """Asks for a connection to this peer; answered by `peer_up` or `peer_lost`."""

    peer: Address


class Disconnect(Event, frozen=True):
    """This peer is no longer needed."""

    peer: Address


class Listen(Event, frozen=True):
    """Asks to be reachable. `filter` is the mode's own word for the callers to admit."""

    filter: str


class Record(Event, frozen=True):
    """Asks the driver to store bytes. The driver answers by `stored`; nothing that relies on the bytes may leave
    before.

    A record stands until the next one of its number, or until it is `Settled`.
    """

    record: int
    data: bytes


class Settled(Event, frozen=True):
    """This record is done with: the driver may forget it."""

    record: int


class Left(Event, frozen=True):
    """The neighbours were told that this machine leaves (`Departing`). Nothing of it waits to be sent."""


class Waiting(Event, frozen=True):
    """Subscription `number` is accepted, and gets what is published from `until_us` on; None while that time is
    unknown.
    """

    number: int
    until_us: int | None


class Overdue(Event, frozen=True):
    """A publication that could not be handed on within its time. As far as is known, no subscriber has it.

    It is not given up: the machine keeps trying, and this event repeats, until it succeeds or the owner withdraws it.
    """

    record: int
    publication: Publication


class Delivered(Event, frozen=True):
    """A notification for subscription `number`; it repeats until its id is acknowledged."""

    number: int
    note: Note
