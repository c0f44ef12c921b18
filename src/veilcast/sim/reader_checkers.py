"""Checkers of readers, of every mode that has wishes: who must get what, and who must not; and how they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from veilcast.machine import Address, Delivered, Event, Note, Publication
from veilcast.sim.checkers import AtMostOnce, Bounded, Checker, Intact, ViolationError
from veilcast.topics import Conjunction

if TYPE_CHECKING:
    from veilcast.sim.world import World


Wishes: TypeAlias = Mapping[Address, tuple[Conjunction, ...]]
"""What each reader wants; subscriptions are numbered in this order."""


class Diary:
    """What the publishers sent, by its body; and what of it is on a publisher's disk, so that it must arrive."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Publication] = {}
        self.owed: dict[bytes, None] = {}


def body_of(note: Note) -> bytes:
    return note.publication.body


def reader_checker(
    check: str,
    diary: Diary,
    wishes: Wishes,
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
            return Intact(diary.sent, body_of)
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

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            wish = self._wishes[address][event.number - 1]
            if not wish.matches(event.note.publication):
                raise ViolationError(f"{address} delivered {body_of(event.note)!r} for {wish}")


class Complete(Checker):
    """By the end all that is owed has been delivered, for each subscription that it matches."""

    def __init__(self, diary: Diary, wishes: Wishes) -> None:
        self._diary, self._wishes = diary, wishes
        self._heard: dict[tuple[Address, int, bytes], None] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            self._heard[address, event.number, body_of(event.note)] = None

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
