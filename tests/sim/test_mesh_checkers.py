"""The checkers of the mesh, each where it must report and where it must not; `test_mesh_planted_bugs` shows them at
work."""

from __future__ import annotations

import pytest

from support.frame_adversaries import ScriptedPeer
from veilcast.machine import Address, Delivered, Frame, Note, Publication
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.engine import SimulationError
from veilcast.sim.mesh.checkers import PublisherOrder, SentNote, UniqueNonces
from veilcast.sim.world import World
from veilcast.wire import encode
from veilcast.wire.mesh import Notify

A, B = Address("a"), Address("b")
GAP_US = 5_000_000


class Reader:
    """Delivers notes to the checker of the publishers' order, as a world would."""

    def __init__(self) -> None:
        self.world = World(seed=1)
        self.sent: dict[bytes, SentNote] = {}
        self.checker = PublisherOrder(self.sent, GAP_US)
        for number in range(10):
            self.sent[b"%d" % number] = SentNote((B, 0), number, self.world.now)

    def get(self, *bodies: str) -> None:
        for body in bodies:
            note = Note(body.encode().rjust(16), Publication((), body.encode()))
            self.checker.on_event(self.world, A, Delivered(1, note))


def test_notes_in_order_are_in_turn_wherever_they_begin() -> None:
    Reader().get("4", "5", "6")


def test_what_was_before_the_beginning_may_come_late() -> None:
    Reader().get("4", "3", "5")


def test_a_note_that_overtakes_another_must_have_waited_for_it() -> None:
    reader = Reader()
    with pytest.raises(ViolationError, match="note 3 before note 2"):
        reader.get("1", "3")
    reader.world.run(GAP_US)
    reader.get("3", "2", "4")
    reader.sent[b"6"] = SentNote((B, 0), 6, reader.world.now)
    with pytest.raises(ViolationError, match="note 6 before note 5"):
        reader.get("6")


def test_the_lives_of_a_publisher_have_turns_of_their_own_and_strange_notes_have_none() -> None:
    reader = Reader()
    reader.sent[b"9"] = SentNote((B, 1), 9, reader.world.now)
    reader.get("1", "9", "2", "strange")


def send(*notes: Notify) -> None:
    world = World(seed=1)
    world.watch(UniqueNonces())
    world.add(
        A, lambda birth: ScriptedPeer([(birth.now, Frame(B, b"\0")), *((birth.now, _framed(note)) for note in notes)])
    )
    world.run(1_000_000)


def _framed(note: Notify) -> Frame:
    return Frame(B, encode(note))


def note(token: int, nonce: int, text: bytes) -> Notify:
    return Notify(bytes([token]) * 32, b"\1" + bytes([nonce]) * 12 + text.ljust(64), bytes(64))


def test_a_nonce_may_be_seen_again_with_its_note_and_under_another_key() -> None:
    send(note(1, 1, b"x"), note(1, 1, b"x"), note(1, 2, b"y"), note(2, 1, b"y"))


def test_a_nonce_that_seals_two_notes_is_found() -> None:
    with pytest.raises(SimulationError, match=r"^UniqueNonces: a sent a note under nonce 0101"):
        send(note(1, 1, b"x"), note(1, 1, b"y"))


def test_frames_are_checked_before_the_first_bad_weather() -> None:
    """A world without faults or recorder sends by a shorter path, which checkers must not miss."""
    seen: list[Frame] = []

    class Watcher(Checker):
        def on_frames(self, world: World, address: Address, frames: object) -> None:
            assert isinstance(frames, list)
            seen.extend(frames)

    world = World(seed=1)
    world.watch(Watcher())
    world.add(A, lambda birth: ScriptedPeer([(birth.now, Frame(B, b"x"))]))
    world.run(1_000)
    assert seen == [Frame(B, b"x")]
