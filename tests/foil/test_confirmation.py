"""The paper's confirmation: one question for a chain, told to those who may know, and what the broker sees of it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from veilcast.crypto.derive import fingerprint
from veilcast.foil.config import FoilConfig
from veilcast.foil.positions import CHAIN
from veilcast.topics import All, Label, Range
from veilcast.wire import mqtt
from veilcast.wire.mqtt import Publish, Version

sys.path.insert(0, str(Path(__file__).parent))

from parley import CONFIG, EPOCH_US, TOPIC, Parley, bodies, keyring, price

PAPER = msgspec.structs.replace(CONFIG, profile="paper", k_p=1)


def room_of(config: FoilConfig = PAPER) -> Parley:
    room = Parley(config)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(All(Label(TOPIC), Range("price", 100, 200)), room.now)
    room.run(1)
    return room


def publish(room: Parley, count: int, value: float = 150) -> None:
    for number in range(count):
        room.places["alice"].member.publish(price(value, body=b"%d" % number), room.now)
        room.run(0.05)


def sent(room: Parley, name: str, kind: str) -> list[Publish]:
    return [
        packet
        for who, _, packet in room.sent
        if who == name and isinstance(packet, Publish) and packet.topic.split("/")[1] == kind
    ]


def test_a_chain_is_asked_about_once_and_the_next_one_again() -> None:
    room = room_of()
    publish(room, CHAIN)
    assert len(room.places["bob"].notes) == CHAIN
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
    assert bodies(hardened.places["bob"].notes) == [b"0", b"1", b"2", b"3", b"4"]
    assert {packet.topic.split("/")[1] for who in ("alice", "bob") for packet in sent(hardened, who, "ask")} == set()


def test_a_publisher_tells_only_whom_it_likes() -> None:
    allowed = fingerprint(keyring("subscriber", 3, "paper").membership.certificate.leaf.subject).hex()
    room = room_of(msgspec.structs.replace(PAPER, allow=(allowed,)))
    room.add("carol", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    publish(room, 3)
    room.run(5)
    assert room.places["bob"].notes == []
    assert bodies(room.places["carol"].notes) == [b"0", b"1", b"2"]
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
            member.receive(mqtt.encode(Publish(packet.topic, payload, 9), Version.MQTT_5), peer, room.now)
    # An old answer that comes again is to no question.
    peer = next(iter(bob._spans)).session.peer
    bob.receive(mqtt.encode(Publish(tell.topic, tell.payload, 9), Version.MQTT_5), peer, room.now)
    assert bob.refused.total() == 4
    assert alice.refused.total() == 3
    publish(room, 2)
    assert bodies(room.places["bob"].notes) == [b"0", b"1", b"0", b"1"]


def test_questions_have_one_size_and_name_nobody() -> None:
    room = room_of()
    publish(room, 2)
    [ask] = sent(room, "bob", "ask")
    assert len(ask.payload) == 1024 + 29
    certificate = keyring("subscriber", 2, "paper").membership.certificate
    assert certificate.leaf.subject not in ask.payload


def test_a_stranger_that_sends_another_body_under_the_same_head_keeps_nobody_from_the_truth() -> None:
    """Names are in plain text: whoever is at the broker can publish under them, while a reader waits for an answer."""
    room = room_of()
    room.withheld.append("alice")
    publish(room, 1)
    bob = room.places["bob"].member
    peer = next(iter(bob._spans)).session.peer
    for _, _, packet in list(room.sent):
        if isinstance(packet, Publish) and "/on/" in packet.topic:
            spoilt = packet.payload[:-1] + bytes([packet.payload[-1] ^ 1])
            bob.receive(mqtt.encode(Publish(packet.topic, spoilt, 9), Version.MQTT_5), peer, room.now)
    room.run(0.1)
    room.withheld.clear()
    room.run(5)
    assert bodies(room.places["bob"].notes) == [b"0"]


def test_whose_membership_has_ended_since_the_publisher_began_is_not_told() -> None:
    room = room_of(msgspec.structs.replace(PAPER, keep_us=0))
    leaf = keyring("subscriber", 2, "paper").membership.certificate.leaf
    room.now = (leaf.last + 2) * EPOCH_US
    room.run(1)
    publish(room, 1)
    assert room.places["bob"].notes == []
