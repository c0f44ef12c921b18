"""Checkers of the mesh: locks expire, parents lead to a root, subscribers are reachable, notes arrive in order, nonces
are unique.

They read the tables of all nodes at once and every frame, which no node can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from veilcast.crypto.seal import NONCE
from veilcast.machine import Address, Delivered, Event, Frame
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.mesh import Notify

if TYPE_CHECKING:
    from veilcast.sim.world import World


class LocksExpire(Checker):
    """No lock outlives its lease by more than the heartbeat at which a node notices."""

    def __init__(self, lease_us: int, period_us: int) -> None:
        self._allowed_us, self._period_us = lease_us + period_us, period_us

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        now = world.clock(address)
        if machine.next_timer() < now:
            return  # The node was paused, and its next heartbeat, at which it notices, has not come yet.
        for game in unwrap(machine).overlay.policy.active_games():
            if now - game.since_us > self._allowed_us:
                raise ViolationError(f"{address} is {game.state.name} for {now - game.since_us} us, past its lease")


class ParentsLeadToRoot(Checker):
    """At every moment, the chain of parents from each node ends at a node without a parent."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        path: dict[Address, None] = {}
        at: list[Address] = [address]
        while at:
            if at[0] in path:
                raise ViolationError(f"{address} has the topic from itself, by {', '.join(path)}")
            path[at[0]] = None
            inner = mesh_node_at(world, at[0])
            at = [] if inner is None else inner.overlay.branches.inward(self._token)


class SubscribersReachable(Checker):
    """At the end a note of any publisher would reach every subscriber: each hop is sent, and accepted."""

    def __init__(self, token: bytes, publishers: Iterable[Address], subscribers: Iterable[Address]) -> None:
        self._token, self._publishers, self._subscribers = token, tuple(publishers), tuple(subscribers)

    def on_end(self, world: World) -> None:
        for publisher in self._publishers:
            reached = reachable_from(world, self._token, publisher)
            for subscriber in self._subscribers:
                if subscriber not in reached:
                    raise ViolationError(f"{subscriber} is cut off from {publisher}")


class SubscribersAlwaysReachable(SubscribersReachable):
    """From `since_us` on, when the mesh has recovered from all faults, this holds at every moment.

    So no subscriber loses its connection to a publisher because other nodes swap places.
    """

    def __init__(
        self, token: bytes, publishers: Iterable[Address], subscribers: Iterable[Address], since_us: int
    ) -> None:
        super().__init__(token, publishers, subscribers)
        self._since_us = since_us

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        if world.now - world.start >= self._since_us:
            self.on_end(world)


class SentNote(NamedTuple):
    """A published note: the publisher's incarnation, its number within that incarnation, and the time."""

    life: tuple[Address, int]
    number: int
    at_us: int


class PublisherOrder(Checker):
    """A subscriber gets the notes of one incarnation of a publisher in order, unless it has waited for a missing one.

    A subscriber chooses where its view of a publisher begins, and a note that it has given up may come late. `sent` may
    grow during the run, as for `Intact`; unsent notes have no order.
    """

    def __init__(self, sent: Mapping[bytes, SentNote], gap_us: int) -> None:
        self._sent = sent
        self._patience_us = gap_us - gap_us // _DRIFT
        self._next: dict[tuple[Address, int, tuple[Address, int]], int] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered) or event.note.publication.body not in self._sent:
            return
        life, number, at_us = self._sent[event.note.publication.body]
        subscriber = (address, world.incarnation(address), life)
        expected = self._next.get(subscriber, number)
        if number > expected and world.now - at_us < self._patience_us:
            raise ViolationError(f"{address} delivered note {number} before note {expected}, and did not wait for it")
        self._next[subscriber] = max(expected, number + 1)


class UniqueNonces(Checker):
    """No two notes are sealed with one nonce under the key of one topic."""

    def __init__(self) -> None:
        self._used: dict[tuple[bytes, bytes], bytes] = {}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] == b"\0":
                continue
            note = decode(frame.data)
            if isinstance(note, Notify):
                nonce = note.sealed[1 : 1 + NONCE]
                if self._used.setdefault((note.token, nonce), note.sealed) != note.sealed:
                    raise ViolationError(f"{address} sent a note under nonce {nonce.hex()}, which another has used")


class TopicChecker(Checker):
    """Passes the deliveries of one topic to another checker, so that there is one checker for each topic."""

    def __init__(self, topic: str, checker: Checker) -> None:
        self._pair, self._checker = Label(topic).pair, checker

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and self._pair in event.note.publication.pairs:
            self._checker.on_event(world, address, event)

    def on_end(self, world: World) -> None:
        self._checker.on_end(world)


def mesh_node_at(world: World, address: Address) -> Any:
    """The mesh node at this address, also inside an adversary."""
    return unwrap(world.machine(address))


def reachable_from(world: World, token: bytes, start: Address) -> dict[Address, None]:
    """The nodes that a note would reach from here, if all tables stayed as they are."""
    reached: dict[Address, None] = {start: None}
    border = [start]
    while border:
        address = border.pop()
        for name in mesh_node_at(world, address).overlay.mesh_neighbours(token):
            machine = mesh_node_at(world, name)
            if name not in reached and machine is not None and machine.knows(address):
                reached[name] = None
                border.append(name)
    return reached


_DRIFT: Final = 1000
"""Clocks drift by less than one part in this many."""
