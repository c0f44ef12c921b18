"""Heartbeats: one size, in order, bounded; and every management message fits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.mesh_network import SMALL_CONFIG, TOKEN, advert
from veilcast.crypto.certificate import COVER_MAX, EPOCH_MAX, Certificate, CertificateChain, CertificateKind
from veilcast.crypto.hash_chain import LENGTH_MAX, Anchor
from veilcast.errors import MalformedError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import Heartbeats, read_heartbeat
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.geometry import ADVERT_MAX
from veilcast.wire.mesh import (
    Advert,
    Candidacy,
    Decline,
    Greet,
    Heartbeat,
    Keep,
    Subscribe,
    SwapAsk,
    Unadvert,
    Unsubscribe,
)

A, B = Address("a"), Address("b")


def beats(size: int = SMALL_CONFIG.heartbeat_bytes, queue_max: int = 100) -> Heartbeats:
    return Heartbeats(period_us=1_000, size=size, queue_max=queue_max, first_us=500, first_number=7)


def ridden(queue: Heartbeats, name: Address, size: int = SMALL_CONFIG.heartbeat_bytes) -> list[Message]:
    (frame,) = (frame for frame in queue.beat((A, B), queue.next_us) if frame.destination == name)
    assert len(frame.data) == size
    return [decode(rider) for rider in read_heartbeat(frame.data, size).riders]


@given(st.lists(st.sampled_from(["subscribe", "advert"]), max_size=30))
def test_messages_arrive_in_order_over_as_many_beats_as_they_need(kinds: list[str]) -> None:
    queue = beats()
    sent: list[Message] = [
        advert(place) if kind == "advert" else Subscribe(bytes([place]) * 32) for place, kind in enumerate(kinds)
    ]
    for message in sent:
        queue.send(message, (A,))
    got: list[Message] = []
    while queue.count_queued():
        got += ridden(queue, A)
    assert got == sent


def test_the_largest_message_of_each_kind_fits_a_heartbeat_of_any_configuration() -> None:
    leaf = Certificate(
        CertificateKind.PUBLISHER, bytes(32), bytes(32), EPOCH_MAX, EPOCH_MAX, bytes(16), COVER_MAX, bytes(64)
    )
    delegation = msgspec.structs.replace(leaf, kind=CertificateKind.DELEGATE, cover=0)
    anchor = Anchor(bytes(32), LENGTH_MAX, (1 << 63) - 1, bytes(64))
    root = Candidacy(
        CertificateChain(msgspec.structs.replace(delegation, kind=CertificateKind.MEMBER), delegation), bytes(32)
    )
    largest = Advert(bytes(32), bytes(32), anchor, CertificateChain(leaf, delegation), bytes(64), root, bytes(16))
    assert len(encode(largest)) <= ADVERT_MAX
    for neighbours, address_bytes in ((1, 1), (20, 8), (64, 128)):
        size = MeshConfig(neighbours_max=neighbours, address_bytes_max=address_bytes).heartbeat_bytes
        names = ("x" * address_bytes,) * neighbours
        for message in (largest, SwapAsk(bytes(16), bytes(32), names, names)):
            queue = beats(size)
            queue.send(message, (A,))
            assert ridden(queue, A, size) == [message]


def test_a_full_queue_drops_its_oldest() -> None:
    queue = beats(queue_max=3)
    for place in range(10):
        queue.send(Subscribe(bytes([place]) * 32), (A,))
    assert queue.count_queued() == 3
    assert ridden(queue, A) == [Subscribe(bytes([place]) * 32) for place in (7, 8, 9)]


def test_the_period_does_not_depend_on_the_load_and_missed_beats_are_not_made_up_for() -> None:
    queue = beats()
    queue.beat((A,), 500)
    assert queue.next_us == 1_500
    queue.send(advert(), (A,))
    assert queue.next_us == 1_500
    assert len(queue.beat((A,), 9_900)) == 1
    assert queue.next_us == 10_500


def test_a_forgotten_neighbour_gets_no_old_message() -> None:
    queue = beats()
    queue.send(Subscribe(bytes(32)), (A, B))
    queue.forget(A)
    assert ridden(queue, A) == []


@pytest.mark.parametrize("message", [Subscribe(bytes(32)), Heartbeat(1, ())])
def test_only_a_heartbeat_of_the_one_size_is_read(message: Message) -> None:
    size = SMALL_CONFIG.heartbeat_bytes if isinstance(message, Subscribe) else SMALL_CONFIG.heartbeat_bytes - 1
    with pytest.raises(MalformedError):
        read_heartbeat(pad(encode(message), size), SMALL_CONFIG.heartbeat_bytes)


def test_dropping_topic_state_drops_old_offers_and_requests_and_keeps_all_other_messages() -> None:
    queue = beats()
    for message in (Subscribe(TOKEN), Greet(), Keep(7)):
        queue.send(message, (A, B))
    queue.drop_topic_state(A)
    assert queue.count_queued() == 2 + 3
    assert ridden(queue, A) == [Greet(), Keep(7)]


def test_withdrawals_survive_dropping_the_topic_state() -> None:
    """A heartbeat with the offer may have been in flight when the neighbour asked for all state."""
    queue = beats()
    for message in (Unadvert(TOKEN, bytes(32)), Unsubscribe(TOKEN), Decline(TOKEN)):
        queue.send(message, (A,))
    queue.drop_topic_state(A)
    assert ridden(queue, A) == [Unadvert(TOKEN, bytes(32)), Unsubscribe(TOKEN), Decline(TOKEN)]
