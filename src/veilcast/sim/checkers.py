"""Checkers: plug-ins that look at a running world and raise `ViolationError` when it is not as it must be.

A checker overrides the hooks it needs and pays for nothing else: a hook that nobody overrides is never
called. Events are rare beside frames, so `on_event` is nearly free. `on_change` is for the state inside
machines: it runs after a machine's first step, and then after each that moved its `version`, a counter which a
checked machine raises whenever it changes a table; a step that changed nothing costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veilcast.errors import LocalError
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication
from veilcast.sim.adversaries import innermost
from veilcast.sim.graphs import connected

if TYPE_CHECKING:
    from veilcast.sim.world import World


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


class OnlyReaders(Checker):
    """Nobody but these addresses delivers anything."""

    def __init__(self, readers: Iterable[Address]) -> None:
        self._readers = dict.fromkeys(readers)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address not in self._readers:
            raise ViolationError(f"{address} delivered a note, and it is no subscriber")


def id_of(note: Note) -> bytes:
    return note.id


class Intact(Checker):
    """Every note delivered is one of those sent, unchanged. `sent` may still grow while the run goes on.

    Notes are known by their ids, or by what `name` reads from them where only the machine knows the id.
    """

    def __init__(self, sent: Mapping[bytes, Publication], name: Callable[[Note], bytes] = id_of) -> None:
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
        self, sent: Iterable[bytes], addresses: Iterable[Address], name: Callable[[Note], bytes] = id_of
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


class Connected(Checker):
    """In the end those who are up can all reach one another, by the neighbours that `read` tells of each machine."""

    def __init__(self, addresses: Iterable[Address], read: Callable[[Any], Iterable[Address]]) -> None:
        self._addresses, self._read = tuple(addresses), read

    def on_end(self, world: World) -> None:
        up = [address for address in self._addresses if world.machine(address) is not None]
        index = {address: number for number, address in enumerate(up)}
        edges = [(index[u], index[v]) for u in up for v in self._read(world.machine(u)) if v in index]
        if up and not connected(len(up), edges):
            raise ViolationError(f"the overlay of {len(up)} nodes fell apart")


class Bounded(Checker):
    """A number read from each machine, be it wrapped or not, never passes its bound."""

    def __init__(self, what: str, bound: int, read: Callable[[Any], int]) -> None:
        self._what = what
        self._bound = bound
        self._read = read

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        value = self._read(innermost(machine))
        if value > self._bound:
            raise ViolationError(f"{address} has {value} {self._what}, more than {self._bound}")


def overrides(checker: Checker, hook: str) -> bool:
    return getattr(type(checker), hook) is not getattr(Checker, hook)
