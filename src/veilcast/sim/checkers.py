"""Checkers of readers, of every mode that has wishes: who must get what, and who must not; and how they are named.

Checkers: plug-ins that look at a running world and raise `ViolationError` when it is not as it must be.

A checker overrides the hooks it needs and pays for nothing else: a hook that nobody overrides is never
called. Events are rare beside frames, so `on_event` is nearly free. `on_change` is for the state inside
machines: it runs after a machine's first step, and then after each that moved its `version`, a counter which a
checked machine raises whenever it changes a table; a step that changed nothing costs one comparison."""

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
    """What a checker found; the world adds when, where and how to see it again."""


class Checker:
    """The four hooks. All state of a checker lives as long as its run."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        """A machine has emitted an event."""

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        """A machine has sent frames; what becomes of them on their way is not known yet."""

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        """A step has changed the tables of a machine, or was its first."""

    def on_end(self, world: World) -> None:
        """The run is over: the place for what must have happened by then."""


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
    """Nobody but these addresses delivers anything."""

    def __init__(self, readers: Iterable[Address]) -> None:
        self._readers = dict.fromkeys(readers)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address not in self._readers:
            raise ViolationError(f"{address} delivered a note, and it is no subscriber")


def notification_id(note: Note) -> bytes:
    return note.id


class Intact(Checker):
    """Every note delivered is one of those sent, unchanged. `sent` may still grow while the run goes on.

    Notes are known by their ids, or by what `name` reads from them where only the machine knows the id.
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
    """By the end every address has delivered every note sent. `sent` may still grow, as for `Intact`."""

    def __init__(
        self, sent: Iterable[bytes], addresses: Iterable[Address], name: Callable[[Note], bytes] = notification_id
    ) -> None:
        self._sent, self._name = sent, name
        self._heard: dict[Address, dict[bytes, None]] = {address: {} for address in addresses}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address in self._heard:
            self._heard[address][self._name(event.note)] = None

    def on_end(self, world: World) -> None:
        for address, heard in self._heard.items():
            missing = [note for note in self._sent if note not in heard]
            if missing:
                raise ViolationError(f"{address} never delivered {len(missing)} notes, among them {missing[0].hex()}")


class OverlayConnected(Checker):
    """In the end those who are up can all reach one another, by the neighbours that `read` tells of each machine."""

    def __init__(self, addresses: Iterable[Address], read: Callable[[Any], Iterable[Address]]) -> None:
        self._addresses, self._read = tuple(addresses), read

    def on_end(self, world: World) -> None:
        up = [address for address in self._addresses if world.machine(address) is not None]
        index = {address: number for number, address in enumerate(up)}
        edges = [(index[u], index[v]) for u in up for v in self._read(world.machine(u)) if v in index]
        if up and not is_connected(len(up), edges):
            raise ViolationError(f"the overlay of {len(up)} nodes fell apart")


class Bounded(Checker):
    """A number read from each machine, be it wrapped or not, never passes its bound."""

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
"""What each reader wants; subscriptions are numbered in this order."""


class PublicationLog:
    """What the publishers sent, by its body; and what of it is on a publisher's disk, so that it must arrive."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Publication] = {}
        self.owed: dict[bytes, None] = {}


def publication_body(note: Note) -> bytes:
    return note.publication.body


def make_subscriber_checker(
    check: str,
    diary: PublicationLog,
    wishes: SubscriptionTable,
    bounds: Callable[[Any], Mapping[str, int]],
    others: Mapping[str, Callable[[], Checker]] | None = None,
) -> Checker:
    """The checker of this name, in a population of readers: those of all modes, and `others` of this one.

    `bounds` says of a machine how large each of its tables may be.
    """
    if others and check in others:
        return others[check]()
    match check:
        case "once":
            return AtMostOnce()
        case "intact":
            return Intact(diary.sent, publication_body)
        case "matching":
            return Matching(wishes)
        case "complete":
            return Complete(diary, wishes)
    assert check == "bounds", "populations refuse what has no name"

    def excess(machine: Any) -> int:
        most = bounds(machine)
        return sum(size - most[table] for table, size in machine.sizes().items() if size > most[table])

    return Bounded("entries over the bounds of a table", 0, excess)


class Matching(Checker):
    """Nobody is handed what it did not ask for."""

    def __init__(self, wishes: SubscriptionTable) -> None:
        self._wishes = wishes

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            wish = self._wishes[address][event.number - 1]
            if not wish.matches(event.note.publication):
                raise ViolationError(f"{address} delivered {publication_body(event.note)!r} for {wish}")


class Complete(Checker):
    """By the end all that is owed has been delivered, for each subscription that it matches."""

    def __init__(self, diary: PublicationLog, wishes: SubscriptionTable) -> None:
        self._diary, self._wishes = diary, wishes
        self._heard: dict[tuple[Address, int, bytes], None] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            self._heard[address, event.number, publication_body(event.note)] = None

    def on_end(self, world: World) -> None:
        for body in self._diary.owed:
            publication = self._diary.sent[body]
            for address, wishes in self._wishes.items():
                for number, wish in enumerate(wishes, 1):
                    if wish.matches(publication) and (address, number, body) not in self._heard:
                        raise ViolationError(f"{address} never delivered {body!r} for {wish}")


class Unasked(Checker):
    """The network let nothing through that its reader has to throw away; where cells are as fine as values."""

    def __init__(self, clients: Iterable[Address]) -> None:
        self._clients = tuple(clients)

    def on_end(self, world: World) -> None:
        for address in self._clients:
            client = world.machine(address)
            if client is not None and client.excess:
                raise ViolationError(f"{address} got {client.excess} notes that it had not asked for")
