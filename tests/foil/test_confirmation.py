"""The paper's confirmation: one question for a chain, told to those who may know, and what the broker sees of it."""

from __future__ import annotations

import msgspec
import pytest

from support.foil_network import CONFIG, EPOCH_US, TOPIC, FoilNetwork, bodies_of, foil_keyring, price_publication
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ExcessError, LocalError, RemoteError
from veilcast.foil.config import FoilConfig
from veilcast.foil.positions import CHAIN_EVENTS
from veilcast.topics import All, Label, Range
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version

PAPER = msgspec.structs.replace(CONFIG, profile="paper", k_p=1)


def room_of(config: FoilConfig = PAPER) -> FoilNetwork:
    room = FoilNetwork(config)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(All(Label(TOPIC), Range("price", 100, 200)), room.now)
    room.run(1)
    return room


def publish(room: FoilNetwork, count: int, value: float = 150) -> None:
    for number in range(count):
        room.places["alice"].member.publish(price_publication(value, body=b"%d" % number), room.now)
        room.run(0.05)


def sent(room: FoilNetwork, name: str, kind: str) -> list[PublishPacket]:
    return [
        packet
        for who, _, packet in room.sent
        if who == name and isinstance(packet, PublishPacket) and packet.topic.split("/")[1] == kind
    ]


def test_a_chain_is_asked_about_once_and_the_next_one_again() -> None:
    room = room_of()
    publish(room, CHAIN_EVENTS)
    assert len(room.places["bob"].notes) == CHAIN_EVENTS
    assert len(sent(room, "bob", "ask")) == 1
    assert len(sent(room, "alice", "tell")) == 1
    publish(room, 2)
    assert len(sent(room, "bob", "ask")) == 2


def test_nobody_asks_about_what_only_decoys_brought_so_the_broker_knows_what_was_meant() -> None:
    """The flaw of the paper that the hardened profile does not have: it never asks."""
    room = room_of(msgspec.structs.replace(PAPER, k_s=3))
    publish(room, 5, 500)
    assert sent(room, "bob", "ask") == []
    publish(room, 5)
    assert len(sent(room, "bob", "ask")) == 1
    hardened = room_of(CONFIG)
    publish(hardened, 5)
    assert bodies_of(hardened.places["bob"].notes) == [b"0", b"1", b"2", b"3", b"4"]
    assert {packet.topic.split("/")[1] for who in ("alice", "bob") for packet in sent(hardened, who, "ask")} == set()


def test_a_publisher_tells_only_whom_it_likes() -> None:
    allowed = fingerprint(foil_keyring("subscriber", 3, "paper").membership.certificate.leaf.subject).hex()
    room = room_of(msgspec.structs.replace(PAPER, allow=(allowed,)))
    room.add("carol", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    publish(room, 3)
    room.run(5)
    assert room.places["bob"].notes == []
    assert bodies_of(room.places["carol"].notes) == [b"0", b"1", b"2"]
    telling = room.places["alice"].member._telling
    assert telling is not None
    assert telling.denied > 0


def test_a_question_is_asked_again_and_given_up_and_what_waits_is_bounded() -> None:
    room = room_of(msgspec.structs.replace(PAPER, allow=("nobody",), held_max=10))
    publish(room, 30)
    bob = room.places["bob"].member
    assert bob.sizes()["held"] == 10
    room.run(600)
    assert 3 < len(sent(room, "bob", "ask")) < 12
    assert bob.sizes()["held"] == 0


def test_who_asks_late_learns_nothing_of_what_was_before() -> None:
    room = room_of(msgspec.structs.replace(PAPER, margin_us=0))
    publish(room, 10)
    room.add("carol", "subscriber").subscribe(All(Label(TOPIC), Range("price", 100, 200)), room.now)
    room.run(5)
    publish(room, 3)
    asking = room.places["carol"].member._asking
    assert asking is not None
    [chain] = asking._known.values()
    assert chain.number >= 10
    assert not chain.covers(9)


def test_false_answers_and_questions_are_refused_and_change_nothing() -> None:
    room = room_of()
    publish(room, 2)
    bob, alice = room.places["bob"].member, room.places["alice"].member
    [ask] = sent(room, "bob", "ask")
    [tell] = sent(room, "alice", "tell")
    for member, packet in ((bob, tell), (alice, ask)):
        peer = next(iter(member._spans)).session.peer
        for payload in (b"", bytes(100), packet.payload[:-1] + b"x"):
            member.receive(mqtt.encode(PublishPacket(packet.topic, payload, 9), Version.MQTT_5), peer, room.now)
    # An old answer that comes again is to no question.
    peer = next(iter(bob._spans)).session.peer
    bob.receive(mqtt.encode(PublishPacket(tell.topic, tell.payload, 9), Version.MQTT_5), peer, room.now)
    assert bob.refused.total() == 4
    assert alice.refused.total() == 3
    publish(room, 2)
    assert bodies_of(room.places["bob"].notes) == [b"0", b"1", b"0", b"1"]


def test_questions_have_one_size_and_name_nobody() -> None:
    room = room_of()
    publish(room, 2)
    [ask] = sent(room, "bob", "ask")
    assert len(ask.payload) == 1024 + 29
    certificate = foil_keyring("subscriber", 2, "paper").membership.certificate
    assert certificate.leaf.subject not in ask.payload


def test_a_stranger_that_sends_another_body_under_the_same_head_keeps_nobody_from_the_truth() -> None:
    """Names are in plain text: whoever is at the broker can publish under them, while a reader waits for an answer."""
    room = room_of()
    room.withheld.append("alice")
    publish(room, 1)
    bob = room.places["bob"].member
    peer = next(iter(bob._spans)).session.peer
    for _, _, packet in list(room.sent):
        if isinstance(packet, PublishPacket) and "/on/" in packet.topic:
            spoilt = packet.payload[:-1] + bytes([packet.payload[-1] ^ 1])
            bob.receive(mqtt.encode(PublishPacket(packet.topic, spoilt, 9), Version.MQTT_5), peer, room.now)
    room.run(0.1)
    room.withheld.clear()
    room.run(5)
    assert bodies_of(room.places["bob"].notes) == [b"0"]


def test_whose_membership_has_ended_since_the_publisher_began_is_not_told() -> None:
    room = room_of()
    publish(room, 1)
    [ask] = sent(room, "bob", "ask")
    alice = room.places["alice"].member
    span, telling = next(iter(alice._spans)), alice._telling
    assert telling is not None
    [stream] = alice._streams
    leaf = foil_keyring("subscriber", 2, "paper").membership.certificate.leaf
    telling.answer(span, TOPIC, stream, ask.payload, leaf.last * EPOCH_US)
    with pytest.raises(RemoteError):
        telling.answer(span, TOPIC, stream, ask.payload, (leaf.last + 2) * EPOCH_US)


def test_a_member_whose_own_membership_has_ended_neither_publishes_nor_reads_nor_tells() -> None:
    room = room_of()
    publish(room, 1)
    old = [packet for who, _, packet in room.sent if who == "alice" and isinstance(packet, PublishPacket)]
    room.now = (foil_keyring("subscriber", 2, "paper").membership.certificate.leaf.last + 2) * EPOCH_US
    room.run(1)
    with pytest.raises(LocalError):
        publish(room, 1)
    alice, bob = room.places["alice"].member, room.places["bob"].member
    [ask] = sent(room, "bob", "ask")
    before = len(sent(room, "alice", "tell"))
    for member, packets in ((alice, [ask]), (bob, old)):
        for packet in packets:
            peer = next(iter(member._spans)).session.peer
            member.receive(mqtt.encode(PublishPacket(packet.topic, packet.payload, 9), Version.MQTT_5), peer, room.now)
    room.run(5)
    assert len(sent(room, "alice", "tell")) == before
    assert bodies_of(room.places["bob"].notes) == [b"0"]
    room.kill_broker()
    room.start_broker()
    room.run(60)
    with pytest.raises(LocalError):
        bob.subscribe(Label(TOPIC), room.now)


def test_a_stranger_that_makes_up_streams_keeps_nobody_from_asking_about_a_true_one() -> None:
    room = room_of(msgspec.structs.replace(PAPER, held_max=20, seeds_max=20))
    bob = room.places["bob"].member
    peer = next(iter(bob._spans)).session.peer
    room.withheld.append("alice")
    publish(room, 1)
    candidates = [packet for _, _, packet in room.sent if isinstance(packet, PublishPacket) and "/on/" in packet.topic]
    for number in range(200):
        forged = number.to_bytes(16, "big") + candidates[0].payload[16:]
        bob.receive(mqtt.encode(PublishPacket(candidates[0].topic, forged, 9), Version.MQTT_5), peer, room.now)
    room.run(0.1)
    assert bob.sizes()["held"] <= 20
    assert bob.sizes()["chains"] <= 10, "what nobody ever answered for has half of the room"
    room.withheld.clear()
    publish(room, 1)
    room.run(60)
    assert b"0" in bodies_of(room.places["bob"].notes)
    for number in range(200, 400):
        forged = number.to_bytes(16, "big") + candidates[0].payload[16:]
        bob.receive(mqtt.encode(PublishPacket(candidates[0].topic, forged, 9), Version.MQTT_5), peer, room.now)
    publish(room, 2 * CHAIN_EVENTS)
    room.run(60)
    assert len(room.places["bob"].notes) > 2 * CHAIN_EVENTS, "nor from what follows"


def test_one_asker_has_a_share_of_the_answers_and_leaves_the_rest_to_others() -> None:
    room = room_of(msgspec.structs.replace(PAPER, seeds_max=32))
    publish(room, 1)
    [ask] = sent(room, "bob", "ask")
    alice = room.places["alice"].member
    telling, span = alice._telling, next(iter(alice._spans))
    assert telling is not None
    [stream] = alice._streams
    room.broker = None
    for _ in range(2):
        telling.answer(span, TOPIC, stream, ask.payload, room.now)
    with pytest.raises(ExcessError):
        telling.answer(span, TOPIC, stream, ask.payload, room.now)
