"""A subscriber's handling of a notification does not show on its links, whatever is in the notification.

A hostile publisher is a neighbour, and sees all messages of its neighbours. If a subscriber sent anything else after a
malformed notification than after a good one, the publisher could tell it from a cover, which opens neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from support.poisoned_publications import ExtendedPublication, encode_nested
from veilcast.core.publication import NumberedPublication
from veilcast.machine import Address, Delivered, Event, Frame, Publication
from veilcast.mesh.node import MeshNode
from veilcast.sim import scenario
from veilcast.sim.checkers import Checker
from veilcast.sim.mesh.population import TOPIC
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label

PAIRS = (Label(TOPIC).pair,)
POISON = ExtendedPublication(PAIRS, b"", msgspec.Raw(encode_nested(1_500)))


def good() -> Publication:
    """As long as the malformed one, because the length of a notification shows."""
    size = len(msgspec.msgpack.encode(POISON))
    for body in range(size):
        if len(msgspec.msgpack.encode(made := Publication(PAIRS, bytes(body)))) == size:
            return made
    raise AssertionError


class Wires(Checker):
    """All frames: time, destination, kind of message and length."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str, int, int]] = []
        self.delivered = 0

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        self.seen += [(world.now, address, frame.destination, frame.data[0], len(frame.data)) for frame in frames]

    def on_event(self, world: World, address: Address, event: Event) -> None:
        self.delivered += isinstance(event, Delivered)


def wires(name: str, seed: int, publication: Publication, changes: dict[str, Any], duration_us: int) -> Wires:
    known = scenario.load_scenario(name)
    population: Any = msgspec.structs.replace(known.config.population, checks=(), **changes)
    seen = Wires()
    world = World(seed=seed, links=known.config.links, epoch_us=known.config.epoch_us, disk_us=known.config.disk_us)
    world.watch(seen)
    population.populate(world, duration_us)

    def publish(machine: Any, now: int) -> None:
        unwrap(machine).publish(publication, now)

    publisher, _ = population.roles(seed)
    for number in range(3):
        world.after(population.first_us + number * 2_000_000, lambda: world.call(publisher, publish))
    world.run(duration_us)
    return seen


SHORT = ("mesh-small", {"notes": 0}, 40_000_000)
LONG = ("mesh-hardened", {"notes": 0}, 190_000_000)


ROOT_READS = 4
"""A seed under which the root of the topic's mesh is a reader. A root owes receipts, so it has more to show."""


@pytest.mark.parametrize("seed", [1, ROOT_READS, 5])
@pytest.mark.parametrize(("name", "changes", "duration_us"), [SHORT, LONG])
def test_a_malformed_and_a_good_notification_cause_the_same_frames(
    name: str, changes: dict[str, Any], duration_us: int, seed: int
) -> None:
    poisoned = wires(name, seed, POISON, changes, duration_us)
    honest = wires(name, seed, good(), changes, duration_us)
    assert honest.delivered > 0 == poisoned.delivered
    assert poisoned.seen == honest.seen


def test_a_subscriber_that_reacts_to_a_malformed_notification_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: opening raises, as it once did. A root that subscribes then gives no receipt, and the stem
    repeats."""
    honest = wires(LONG[0], ROOT_READS, good(), LONG[1], LONG[2])
    deliver = MeshNode._deliver

    def raises(self: MeshNode, topic: str, opened: Callable[[], NumberedPublication], now: int) -> None:
        opened()
        deliver(self, topic, opened, now)

    monkeypatch.setattr(MeshNode, "_deliver", raises)
    assert wires(LONG[0], ROOT_READS, POISON, LONG[1], LONG[2]).seen != honest.seen
