"""A message on which the wrapped machine raises takes no other message of its cell with it, and ends no link."""

from __future__ import annotations

import pytest

from support.link_network import LinkWorld, RecordingMachine
from veilcast.link.config import LinkConfig
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address, Frame
from veilcast.sim.engine import SimulationError

BOTH = pytest.mark.parametrize("config", [LinkConfig(), LinkConfig(wire="prompt")], ids=["cells", "prompt"])


@pytest.fixture
def _fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = RecordingMachine.receive

    def fails(self: RecordingMachine, data: bytes, source: Address, now: int) -> None:
        if data == b"poison":
            raise RecursionError
        receive(self, data, source, now)

    monkeypatch.setattr(RecordingMachine, "receive", fails)


@BOTH
@pytest.mark.usefixtures("_fragile")
def test_messages_after_one_that_raises_arrive(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.links("b").faults.strict = False
    world.tell("a", "b", b"hello", b"poison", b"behind it")
    world.run(4 * SECOND_US)
    assert world.heard("b") == [b"hello", b"behind it"]
    assert world.links("b").faults.count == 1
    assert world.talker("b").notices == [("up", Address("a"))]
    world.run(20 * SECOND_US)
    assert world.links("b").faults.count == 1, "the link does not send it again"
    assert world.talker("a").notices == [("up", Address("b"))]


@BOTH
@pytest.mark.usefixtures("_fragile")
def test_a_fault_inside_a_link_ends_a_simulation(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.tell("a", "b", b"hello", b"poison")
    with pytest.raises(SimulationError, match="RecursionError"):
        world.run(4 * SECOND_US)


def test_cells_leave_even_if_the_wrapped_machine_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LinkWorld("a", "b", watched=True)
    world.tell("a", "b", b"hello")
    world.run(4 * SECOND_US)
    world.links("b").faults.strict = False

    def fails(self: RecordingMachine, now: int, limit: int) -> list[Frame]:
        raise ZeroDivisionError

    monkeypatch.setattr(RecordingMachine, "frames_to_send", fails)
    world.links("a").faults.strict = False
    before = len(world.wire.seen)
    world.run(10 * SECOND_US)
    rate = LinkConfig().rate
    assert abs(len(world.wire.seen) - before - 2 * rate * 10) <= 4
    assert world.links("b").faults.count > 0
