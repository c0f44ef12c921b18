"""Flooding: first receipt forwards, later copies do not, and memory is bounded."""

from __future__ import annotations

import pytest

from veilcast.errors import LocalError
from veilcast.machine import Address, Delivered
from veilcast.sim.flood import ID_SIZE, FloodNode

A, B, C = Address("a"), Address("b"), Address("c")


def node(memory: int = 8) -> FloodNode:
    machine = FloodNode(memory)
    for peer in (A, B, C):
        machine.peer_up(peer, 0)
    return machine


def message(number: int) -> bytes:
    return number.to_bytes(ID_SIZE, "big")


def test_the_first_copy_goes_to_all_but_its_sender_and_the_second_to_none() -> None:
    machine = node()
    machine.receive(message(1) + b"hi", B, 0)
    assert [f.destination for f in machine.frames_to_send(0, 9)] == [A, C]
    machine.receive(message(1) + b"hi", C, 0)
    assert machine.frames_to_send(0, 9) == []


def test_a_message_is_delivered_once_with_its_body() -> None:
    machine = node()
    machine.publish(message(1), b"hi")
    machine.receive(message(1) + b"hi", C, 0)
    event = machine.next_event()
    assert isinstance(event, Delivered)
    assert (event.note.id, event.note.publication.body) == (message(1), b"hi")
    assert machine.next_event() is None


def test_frames_beyond_the_limit_stay_queued() -> None:
    machine = node()
    machine.publish(message(1), b"")
    assert [len(machine.frames_to_send(0, 2)) for _ in range(3)] == [2, 1, 0]


def test_it_remembers_so_many_ids_and_forgets_the_oldest_first() -> None:
    machine = node(memory=3)
    for number in range(10):
        machine.receive(message(number), A, 0)
        assert machine.remembered <= 3
    machine.frames_to_send(0, 99)
    machine.receive(message(7), A, 0)
    assert machine.frames_to_send(0, 99) == []
    machine.receive(message(6), A, 0)
    assert len(machine.frames_to_send(0, 99)) == 2


def test_the_version_moves_exactly_when_the_table_does() -> None:
    machine = node()
    machine.receive(message(1), A, 0)
    assert machine.version == 1
    machine.receive(message(1), B, 0)
    assert machine.version == 1


def test_what_is_too_short_for_an_id_is_ignored() -> None:
    machine = node()
    machine.receive(b"short", A, 0)
    assert machine.frames_to_send(0, 9) == []
    assert machine.next_event() is None


def test_a_lost_peer_gets_nothing_and_notices_may_repeat() -> None:
    machine = node()
    machine.peer_up(A, 0)
    machine.peer_lost(B, 0)
    machine.peer_lost(B, 0)
    machine.publish(message(1), b"")
    assert [f.destination for f in machine.frames_to_send(0, 9)] == [A, C]


def test_misuse_is_refused() -> None:
    with pytest.raises(LocalError):
        FloodNode(0)
    with pytest.raises(LocalError):
        node().publish(b"short", b"")
