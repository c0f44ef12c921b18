"""Each adversary does its one thing to the traffic of an honest machine, and they stack."""

from __future__ import annotations

from random import Random

from support.frame_adversaries import Dropper, RecordingWrapper, Replayer, ScriptedPeer, Tamperer
from veilcast.machine import Address, Frame
from veilcast.observe import InsiderRow, ObservationRow
from veilcast.sim.flood import ID_SIZE, FloodNode
from veilcast.sim.wrappers import MEMORY_MAX, Delayer, MachineWrapper

A, B = Address("a"), Address("b")


def flood() -> FloodNode:
    machine = FloodNode(memory=10**6)
    machine.peer_up(B, 0)
    return machine


def publish(wrapper: MachineWrapper, number: int) -> bytes:
    message = number.to_bytes(ID_SIZE, "big")
    wrapper.inner.publish(message, b"body")
    return message + b"body"


def test_a_wrapper_passes_everything_on() -> None:
    wrapper = MachineWrapper(FloodNode())
    wrapper.peer_up(B, 0)
    data = publish(wrapper, 1)
    assert wrapper.frames_to_send(0, 9) == [Frame(B, data)]
    assert wrapper.next_event() is not None
    assert wrapper.next_event() is None
    assert wrapper.version == 1
    wrapper.peer_lost(B, 0)
    wrapper.stored(1, 0)
    wrapper.handle_timer(0)
    assert wrapper.next_timer() is None
    wrapper.receive(bytes(ID_SIZE), A, 0)
    assert wrapper.frames_to_send(0, 9) == []


def test_a_dropper_drops_its_share_and_leaves_nothing_stuck_inside() -> None:
    wrapper = Dropper(flood(), Random(1), drop_ppm=500_000)
    sent = [Frame(B, publish(wrapper, number)) for number in range(1_000)]
    kept: list[Frame] = []
    while batch := wrapper.frames_to_send(0, 10):
        assert len(batch) <= 10
        kept += batch
    assert 400 < len(kept) < 600
    assert [frame for frame in sent if frame in kept] == kept


def test_a_tamperer_flips_one_bit() -> None:
    wrapper = Tamperer(flood(), Random(1))
    data = publish(wrapper, 1)
    (frame,) = wrapper.frames_to_send(0, 9)
    assert (int.from_bytes(frame.data, "big") ^ int.from_bytes(data, "big")).bit_count() == 1
    honest = Tamperer(flood(), Random(1), tamper_ppm=0)
    assert [Frame(B, publish(honest, 1))] == honest.frames_to_send(0, 9)


def test_a_delayer_sends_everything_later_in_order_and_asks_to_be_woken() -> None:
    wrapper = Delayer(flood(), delay_us=50)
    data = [publish(wrapper, number) for number in range(3)]
    assert wrapper.frames_to_send(100, 2) == []
    assert wrapper.next_timer() == 150
    assert wrapper.frames_to_send(149, 9) == []
    assert [frame.data for frame in wrapper.frames_to_send(150, 2)] == data[:2]
    assert [frame.data for frame in wrapper.frames_to_send(150, 2)] == data[2:]
    assert wrapper.next_timer() is None


def test_a_delayer_holds_so_many_frames_and_no_more() -> None:
    wrapper = Delayer(flood(), delay_us=50)
    for number in range(MEMORY_MAX + 10):
        publish(wrapper, number)
    wrapper.frames_to_send(0, 64)
    assert len(wrapper.frames_to_send(50, 10**6)) == MEMORY_MAX


def test_a_replayer_sends_each_frame_once_more_to_the_next_who_writes() -> None:
    wrapper = Replayer(ScriptedPeer())
    for number in range(3):
        wrapper.receive(b"%d" % number, A if number % 2 else B, 0)
    assert wrapper.frames_to_send(0, 9) == [Frame(A, b"0"), Frame(B, b"1")]
    for number in range(MEMORY_MAX + 10):
        wrapper.receive(b"%d" % number, A, 0)
    assert len(wrapper.frames_to_send(0, 10**6)) == MEMORY_MAX


def test_a_tee_writes_down_what_comes_and_goes_and_changes_nothing() -> None:
    rows: list[ObservationRow] = []

    class Rows:
        def append(self, row: ObservationRow) -> None:
            rows.append(row)

    wrapper = RecordingWrapper(flood(), A, Rows(), run="r", epoch_us=10)
    data = bytes(ID_SIZE) + b"x"
    wrapper.receive(data, Address("c"), 25)
    assert wrapper.frames_to_send(25, 9) == [Frame(B, data)]
    came, went = rows
    assert isinstance(came, InsiderRow)
    assert isinstance(went, InsiderRow)
    assert (came.run, came.epoch, came.t_us, came.observer) == ("r", 2, 25, "a")
    assert (came.peer, came.kind, went.peer, went.kind) == ("c", "in:frame", "b", "out:frame")
    assert came.message == went.message


def test_adversaries_stack() -> None:
    wrapper = Delayer(Tamperer(flood(), Random(1)), delay_us=5)
    wrapper.inner.inner.publish(bytes(ID_SIZE), b"")
    assert wrapper.frames_to_send(0, 9) == []
    (frame,) = wrapper.frames_to_send(5, 9)
    assert frame.data != bytes(ID_SIZE)


def test_a_puppet_says_its_script_and_remembers_so_much() -> None:
    puppet = ScriptedPeer([(20, Frame(B, b"2")), (10, Frame(B, b"1"))])
    assert puppet.next_timer() == 10
    puppet.handle_timer(10)
    assert puppet.frames_to_send(10, 9) == [Frame(B, b"1")]
    assert puppet.next_timer() == 20
    for number in range(MEMORY_MAX + 5):
        puppet.receive(b"", A, number)
    assert len(puppet.received) == MEMORY_MAX
