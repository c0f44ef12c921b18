"""What must hold in a mesh: locks end, parents lead to a root, notes reach their readers, in turn, and nonces are new.

They look into the tables of all nodes at once, and at every frame, which nobody in the mesh can.
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
    """No lock outlives its lease by more than the heartbeat at which this is noticed."""

    def __init__(self, lease_us: int, period_us: int) -> None:
        self._allowed_us, self._period_us = lease_us + period_us, period_us

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        now = world.clock(address)
        if machine.next_timer() < now:
            return  # It was stopped, and has not had the heartbeat yet at which it notices.
        for game in unwrap(machine).overlay.policy.active_games():
            if now - game.since_us > self._allowed_us:
                raise ViolationError(f"{address} is {game.state.name} for {now - game.since_us} us, past its lease")


class ParentsLeadToRoot(Checker):
    """Whom each node has the topic from leads to one who has it from nobody, at every moment."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        walked: dict[Address, None] = {}
        at: list[Address] = [address]
        while at:
            if at[0] in walked:
                raise ViolationError(f"{address} has the topic from itself, by {', '.join(walked)}")
            walked[at[0]] = None
            inner = mesh_node_at(world, at[0])
            at = [] if inner is None else inner.overlay.branches.inward(self._token)


class SubscribersReachable(Checker):
    """In the end a note of any publisher would reach every reader: each hop is sent, and accepted."""

    def __init__(self, token: bytes, publishers: Iterable[Address], readers: Iterable[Address]) -> None:
        self._token, self._publishers, self._readers = token, tuple(publishers), tuple(readers)

    def on_end(self, world: World) -> None:
        for publisher in self._publishers:
            reached = reachable_from(world, self._token, publisher)
            for reader in self._readers:
                if reader not in reached:
                    raise ViolationError(f"{reader} is cut off from {publisher}")


class SubscribersAlwaysReachable(SubscribersReachable):
    """From some time on, when a mesh has recovered from all that befell it, this holds at every moment.

    So nobody is parted from a publisher because others change places.
    """

    def __init__(self, token: bytes, publishers: Iterable[Address], readers: Iterable[Address], since_us: int) -> None:
        super().__init__(token, publishers, readers)
        self._since_us = since_us

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        if world.now - world.start >= self._since_us:
            self.on_end(world)


class SentNote(NamedTuple):
    """When a note was published, by whom in which of its lives, and as which of its notes."""

    life: tuple[Address, int]
    number: int
    at_us: int


class PublisherOrder(Checker):
    """Nobody is given a note before an earlier one of the same life of its publisher, unless it waited for that.

    Where a reader's view of a publisher begins is its own choice, and what it has given up may come late. `sent` may
    still grow, as for `Intact`; what nobody sent has no turn.
    """

    def __init__(self, sent: Mapping[bytes, SentNote], gap_us: int) -> None:
        self._sent = sent
        self._patience_us = gap_us - gap_us // _DRIFT
        self._next: dict[tuple[Address, int, tuple[Address, int]], int] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered) or event.note.publication.body not in self._sent:
            return
        life, number, at_us = self._sent[event.note.publication.body]
        reader = (address, world.incarnation(address), life)
        expected = self._next.get(reader, number)
        if number > expected and world.now - at_us < self._patience_us:
            raise ViolationError(f"{address} delivered note {number} before note {expected}, and did not wait for it")
        self._next[reader] = max(expected, number + 1)


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
    """A checker that is told of one topic's deliveries only; one for each topic, and none mixes them up."""

    def __init__(self, topic: str, checker: Checker) -> None:
        self._pair, self._checker = Label(topic).pair, checker

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and self._pair in event.note.publication.pairs:
            self._checker.on_event(world, address, event)

    def on_end(self, world: World) -> None:
        self._checker.on_end(world)


def mesh_node_at(world: World, address: Address) -> Any:
    """The mesh node at this address, be it in an adversary's hands or not."""
    return unwrap(world.machine(address))


def reachable_from(world: World, token: bytes, start: Address) -> dict[Address, None]:
    """Where a note would get to from here, if tables stayed as they are."""
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
"""Clocks go wrong by less than one part in so many."""
