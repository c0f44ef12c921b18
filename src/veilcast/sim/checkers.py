"""Checkers: they watch a running world and raise `ViolationError`.

A checker overrides the hooks it needs, and a hook without an override is never called. Events are rare beside frames,
so `on_event` is nearly free. `on_change` is for the state inside machines. It runs after a machine's first step, and
then after each step that changed the machine's `version`. A checked machine increments that counter whenever it changes
a table. A step without a change costs one comparison.

The checkers of subscribers (`make_subscriber_checker`) serve every mode with subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veilcast.errors import LocalError
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication
from veilcast.sim.graphs import is_connected
from veilcast.sim.wrappers import unwrap

if TYPE_CHECKING:
    from veilcast.sim.world import World
from typing import TYPE_CHECKING, TypeAlias

from veilcast.topics import Conjunction


class ViolationError(LocalError):
    """A checker's finding; the world adds when and where it happened, and the command that replays the run."""


class Checker:
    """The four hooks. A checker keeps its state for the whole run."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        """A machine has emitted an event."""

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        """A machine has sent frames; their arrival is not decided yet."""

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        """A step has changed the tables of a machine, or was its first."""

    def on_end(self, world: World) -> None:
        """The run is over: check here what must have happened by then."""


class AtMostOnce(Checker):
    """No incarnation delivers a note twice for one subscription."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Address, int, int, bytes], None] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered):
            return
        key = (address, world.incarnation(address), event.number, event.note.id)
        if key in self._seen:
            raise ViolationError(f"{address} delivered note {event.note.id.hex()} twice")
        self._seen[key] = None


class InOrder(Checker):
    """Every incarnation delivers notes in the order of the numbers that `number` reads from them."""

    def __init__(self, number: Callable[[Note], int]) -> None:
        self._number = number
        self._last: dict[tuple[Address, int], int] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered):
            return
        key, number = (address, world.incarnation(address)), self._number(event.note)
        if number < self._last.get(key, number):
            raise ViolationError(f"{address} delivered note {number} after note {self._last[key]}")
        self._last[key] = number


class OnlySubscribers(Checker):
    """Only these addresses deliver notes."""

    def __init__(self, subscribers: Iterable[Address]) -> None:
        self._subscribers = dict.fromkeys(subscribers)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address not in self._subscribers:
            raise ViolationError(f"{address} delivered a note, and it is no subscriber")


def notification_id(note: Note) -> bytes:
    return note.id


class Intact(Checker):
    """Every delivered note is one of the sent ones, unchanged. `sent` may grow during the run.

    Notes are identified by their ids, or by `name` where only the machine knows the id.
    """

    def __init__(self, sent: Mapping[bytes, Publication], name: Callable[[Note], bytes] = notification_id) -> None:
        self._sent, self._name = sent, name

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered):
            return
        note, name = event.note, self._name(event.note)
        if name not in self._sent:
            raise ViolationError(f"{address} delivered note {note.id.hex()}, which nobody sent")
        if note.publication != self._sent[name]:
            raise ViolationError(f"{address} delivered note {note.id.hex()} otherwise than it was sent")


class Everyone(Checker):
    """By the end every address has delivered every note in `sent`, which may grow during the run."""

    def __init__(
        self, sent: Iterable[bytes], addresses: Iterable[Address], name: Callable[[Note], bytes] = notification_id
    ) -> None:
        self._sent, self._name = sent, name
        self._delivered: dict[Address, dict[bytes, None]] = {address: {} for address in addresses}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address in self._delivered:
            self._delivered[address][self._name(event.note)] = None

    def on_end(self, world: World) -> None:
        for address, delivered in self._delivered.items():
            missing = [note for note in self._sent if note not in delivered]
            if missing:
                raise ViolationError(f"{address} never delivered {len(missing)} notes, among them {missing[0].hex()}")


class OverlayConnected(Checker):
    """At the end all running machines can reach one another. `read` gives the neighbours of a machine."""

    def __init__(self, addresses: Iterable[Address], read: Callable[[Any], Iterable[Address]]) -> None:
        self._addresses, self._read = tuple(addresses), read

    def on_end(self, world: World) -> None:
        up = [address for address in self._addresses if world.machine(address) is not None]
        index = {address: number for number, address in enumerate(up)}
        edges = [(index[u], index[v]) for u in up for v in self._read(world.machine(u)) if v in index]
        if up and not is_connected(len(up), edges):
            raise ViolationError(f"the overlay of {len(up)} nodes fell apart")


class Bounded(Checker):
    """A number read from each unwrapped machine never exceeds its bound."""

    def __init__(self, what: str, bound: int, read: Callable[[Any], int]) -> None:
        self._what = what
        self._bound = bound
        self._read = read

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        value = self._read(unwrap(machine))
        if value > self._bound:
            raise ViolationError(f"{address} has {value} {self._what}, more than {self._bound}")


def overrides_hook(checker: Checker, hook: str) -> bool:
    return getattr(type(checker), hook) is not getattr(Checker, hook)


SubscriptionTable: TypeAlias = Mapping[Address, tuple[Conjunction, ...]]
"""The subscriptions of each subscriber, in the order in which they are numbered."""


class PublicationLog:
    """All publications that were sent, by body; and those on a publisher's disk, which must arrive."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Publication] = {}
        self.owed: dict[bytes, None] = {}


def publication_body(note: Note) -> bytes:
    return note.publication.body


def make_subscriber_checker(
    check: str,
    log: PublicationLog,
    subscriptions: SubscriptionTable,
    bounds: Callable[[Any], Mapping[str, int]],
    special: Mapping[str, Callable[[], Checker]] | None = None,
) -> Checker:
    """The checker of this name: one for all modes, or one of `others` for this mode.

    `bounds` gives the largest size of each table of a machine.
    """
    if special and check in special:
        return special[check]()
    match check:
        case "once":
            return AtMostOnce()
        case "intact":
            return Intact(log.sent, publication_body)
        case "matching":
            return Matching(subscriptions)
        case "complete":
            return Complete(log, subscriptions)
    assert check == "bounds", "populations refuse what has no name"

    def excess(machine: Any) -> int:
        most = bounds(machine)
        return sum(size - most[table] for table, size in machine.sizes().items() if size > most[table])

    return Bounded("entries over the bounds of a table", 0, excess)


class Matching(Checker):
    """Each delivered note matches the subscription that it is delivered for."""

    def __init__(self, subscriptions: SubscriptionTable) -> None:
        self._subscriptions = subscriptions

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            subscription = self._subscriptions[address][event.number - 1]
            if not subscription.matches(event.note.publication):
                raise ViolationError(f"{address} delivered {publication_body(event.note)!r} for {subscription}")


class Complete(Checker):
    """By the end every owed note has been delivered for each subscription that it matches."""

    def __init__(self, log: PublicationLog, subscriptions: SubscriptionTable) -> None:
        self._log, self._subscriptions = log, subscriptions
        self._delivered: dict[tuple[Address, int, bytes], None] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            self._delivered[address, event.number, publication_body(event.note)] = None

    def on_end(self, world: World) -> None:
        for body in self._log.owed:
            publication = self._log.sent[body]
            for address, subscriptions in self._subscriptions.items():
                for number, subscription in enumerate(subscriptions, 1):
                    if subscription.matches(publication) and (address, number, body) not in self._delivered:
                        raise ViolationError(f"{address} never delivered {body!r} for {subscription}")


class Unasked(Checker):
    """No client received a note that it had to discard, where routing cells are as fine as values."""

    def __init__(self, clients: Iterable[Address]) -> None:
        self._clients = tuple(clients)

    def on_end(self, world: World) -> None:
        for address in self._clients:
            client = world.machine(address)
            if client is not None and client.excess:
                raise ViolationError(f"{address} got {client.excess} notes that it had not asked for")
