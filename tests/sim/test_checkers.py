"""A checker is only worth having if it catches a planted bug: here are the bugs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from support.frame_adversaries import ScriptedPeer, Tamperer
from veilcast.errors import LocalError
from veilcast.machine import Address, Delivered, Event, Frame, Note, Publication
from veilcast.sim.checkers import AtMostOnce, Bounded, Checker, Everyone, Intact
from veilcast.sim.engine import SimulationError
from veilcast.sim.flood import ID_SIZE, FloodNode
from veilcast.sim.host import Birth
from veilcast.sim.world import World
from veilcast.sim.wrappers import MachineWrapper

NODES = tuple(Address(f"n{i}") for i in range(8))
BODY = b"body"


class Forgetful(FloodNode):
    """Forgets ids that end in 7: the next copy counts as new."""

    __slots__ = ()

    def receive(self, data: bytes, source: Address, now: int) -> None:
        super().receive(data, source, now)
        if data[ID_SIZE - 1] == 7:
            self._seen.clear()


class Lossy(FloodNode):
    """Drops every 50th frame it should send."""

    __slots__ = ("counted",)

    def __init__(self) -> None:
        super().__init__()
        self.counted = 0

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        kept = []
        for frame in super().frames_to_send(now, limit):
            self.counted += 1
            if self.counted % 50:
                kept.append(frame)
        return kept


class Hoarder(FloodNode):
    """Ignores its bound."""

    __slots__ = ()

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._memory = 10**9
        super().receive(data, source, now)


def kite(seed: int, build: Callable[[Birth], Any], messages: int) -> World:
    """A triangle, where copies meet, with a tail, where every frame matters; watched by every checker."""
    sent: dict[bytes, Publication] = {}
    world = World(seed=seed, replay=f"veilcast sim run kite --seed {seed}")
    for checker in (
        AtMostOnce(),
        Intact(sent),
        Everyone(sent, NODES),
        Bounded("ids", 1024, lambda machine: machine.remembered),
    ):
        world.watch(checker)
    for address in NODES:
        world.add(address, build)
    for u, v in pairwise(NODES):
        world.connect(u, v)
    world.connect(NODES[0], NODES[2])
    world.run(0)
    for number in range(messages):
        message = number.to_bytes(ID_SIZE, "big")
        sent[message] = Publication((), BODY)
        plan_message(world, NODES[number % len(NODES)], message, number * 1_000)
    return world


def plan_message(world: World, publisher: Address, message: bytes, at_us: int) -> None:
    world.after(at_us, lambda: world.call(publisher, lambda machine, now: machine.publish(message, BODY)))


def failure(seed: int, build: Callable[[Birth], Any], messages: int = 100) -> str:
    world = kite(seed, build, messages)
    with pytest.raises(SimulationError) as caught:
        run_to_the_end(world)
    return str(caught.value)


def run_to_the_end(world: World) -> None:
    world.run(60_000_000)
    world.finish()


def test_a_correct_machine_passes_every_check() -> None:
    world = kite(1, lambda birth: FloodNode(), 1_100)
    run_to_the_end(world)
    assert world.deliveries == 1_100 * len(NODES)


@pytest.mark.parametrize(
    ("build", "messages", "finding"),
    [
        (lambda birth: Forgetful(), 100, "AtMostOnce: .* twice"),
        (lambda birth: Lossy(), 100, "Everyone: .* never delivered"),
        (lambda birth: Hoarder(), 1_100, "Bounded: .* has 1025 ids"),
    ],
)
def test_a_planted_bug_is_caught_and_its_replay_finds_the_same(
    build: Callable[[Birth], FloodNode], messages: int, finding: str
) -> None:
    first = failure(17, build, messages)
    assert "veilcast sim run kite --seed 17" in first
    assert re.match(finding, first)
    assert first == failure(17, build, messages)


def test_a_changed_message_is_caught() -> None:
    class Hidden(Tamperer):
        def publish(self, message: bytes, body: bytes) -> None:
            self.inner.publish(message, body)

    def build(birth: Birth) -> Hidden:
        return Hidden(FloodNode(), birth.rng, tamper_ppm=20_000)

    assert "Intact: " in failure(17, build)


class Counting(Checker):
    def __init__(self) -> None:
        self.changes = 0

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        self.changes += 1


def test_a_step_that_changed_nothing_is_not_checked() -> None:
    world, counting = World(seed=1), Counting()
    world.watch(counting)
    world.add(NODES[0], lambda birth: FloodNode())
    message = bytes(ID_SIZE)
    for _ in range(5):
        world.call(NODES[0], lambda machine, now: machine.publish(message, b""))
    world.run(1_000)
    assert counting.changes == 2  # Once at birth, and once for the first of the messages.


@pytest.mark.parametrize("wrap", [lambda machine: machine, MachineWrapper], ids=["bare", "wrapped"])
def test_a_machine_without_a_version_cannot_escape_a_checker(wrap: Callable[[Any], Any]) -> None:
    class Bare:
        pass

    world = World(seed=1)
    world.watch(Counting())
    with pytest.raises(LocalError, match="version"):
        world.add(NODES[0], lambda birth: wrap(Bare()))


def test_a_machine_is_looked_at_from_its_birth_on_in_every_life() -> None:
    class Big(ScriptedPeer):
        size = 4

    world = World(seed=1)
    world.watch(Bounded("rows", 5, lambda machine: machine.size))
    world.add(NODES[0], lambda birth: Big())
    world.run(10)
    world.crash(NODES[0])
    Big.size = 99
    world.restart(NODES[0])
    with pytest.raises(SimulationError, match="99 rows"):
        world.run(10)


class Reader(ScriptedPeer):
    """Delivers what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def next_event(self) -> Event | None:
        return self.events.pop(0) if self.events else None


def deliver(checker: Checker, *events: Delivered) -> None:
    world = World(seed=1)
    world.watch(checker)
    world.add(NODES[0], lambda birth: Reader())
    world.call(NODES[0], lambda machine, now: machine.events.extend(events))
    world.run(10)


def test_a_note_may_be_delivered_once_for_each_subscription() -> None:
    note = Note(b"id", Publication(()))
    deliver(AtMostOnce(), Delivered(0, note), Delivered(1, note))
    with pytest.raises(SimulationError, match="twice"):
        deliver(AtMostOnce(), Delivered(0, note), Delivered(1, note), Delivered(1, note))


@pytest.mark.parametrize(
    "changed", [Publication((("price", 9),), b"body"), Publication((("price", 1),), b"other"), Publication((), b"body")]
)
def test_a_changed_pair_is_caught_as_a_changed_body_is(changed: Publication) -> None:
    said = Publication((("price", 1),), b"body")
    deliver(Intact({b"id": said}), Delivered(0, Note(b"id", said)))
    with pytest.raises(SimulationError, match="otherwise than it was sent"):
        deliver(Intact({b"id": said}), Delivered(0, Note(b"id", changed)))


def test_a_note_nobody_sent_is_caught() -> None:
    world = World(seed=1)
    world.watch(Intact({}))
    world.add(NODES[0], lambda birth: FloodNode())
    world.call(NODES[0], lambda machine, now: machine.publish(bytes(ID_SIZE), b"x"))
    with pytest.raises(SimulationError, match="nobody sent"):
        world.run(1_000)


def test_a_new_incarnation_may_deliver_again() -> None:
    world = World(seed=1)
    world.watch(AtMostOnce())
    world.add(NODES[0], lambda birth: FloodNode())
    for _ in range(2):
        world.call(NODES[0], lambda machine, now: machine.publish(bytes(ID_SIZE), b"x"))
        world.run(1_000)
        world.crash(NODES[0])
        world.restart(NODES[0])
    assert world.deliveries == 2
