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
def test_what_stands_behind_a_message_that_raises_arrives(config: LinkConfig) -> None:
    street = LinkWorld("a", "b", config=config)
    street.links("b").faults.strict = False
    street.tell("a", "b", b"hello", b"poison", b"behind it")
    street.run(4 * SECOND_US)
    assert street.heard("b") == [b"hello", b"behind it"]
    assert street.links("b").faults.count == 1
    assert street.talker("b").notices == [("up", Address("a"))]
    street.run(20 * SECOND_US)
    assert street.links("b").faults.count == 1, "the link does not send it again"
    assert street.talker("a").notices == [("up", Address("b"))]


@BOTH
@pytest.mark.usefixtures("_fragile")
def test_a_fault_inside_a_link_ends_a_simulation(config: LinkConfig) -> None:
    street = LinkWorld("a", "b", config=config)
    street.tell("a", "b", b"hello", b"poison")
    with pytest.raises(SimulationError, match="RecursionError"):
        street.run(4 * SECOND_US)


def test_cells_leave_even_if_the_machine_inside_fails_to_say_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    street = LinkWorld("a", "b", watched=True)
    street.tell("a", "b", b"hello")
    street.run(4 * SECOND_US)
    street.links("b").faults.strict = False

    def fails(self: RecordingMachine, now: int, limit: int) -> list[Frame]:
        raise ZeroDivisionError

    monkeypatch.setattr(RecordingMachine, "frames_to_send", fails)
    street.links("a").faults.strict = False
    before = len(street.wire.seen)
    street.run(10 * SECOND_US)
    rate = LinkConfig().rate
    assert abs(len(street.wire.seen) - before - 2 * rate * 10) <= 4
    assert street.links("b").faults.count > 0
