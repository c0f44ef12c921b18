"""The paper's confirmation: one question per chain, answers for allowed members, and what the broker sees of it."""

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


def make_network(config: FoilConfig = PAPER) -> FoilNetwork:
    network = FoilNetwork(config)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(All(Label(TOPIC), Range("price", 100, 200)), network.now)
    network.run(1)
    return network


def publish(network: FoilNetwork, count: int, value: float = 150) -> None:
    for number in range(count):
        network.places["alice"].member.publish(price_publication(value, body=b"%d" % number), network.now)
        network.run(0.05)


def sent(network: FoilNetwork, name: str, kind: str) -> list[PublishPacket]:
    return [
        packet
        for who, _, packet in network.sent
        if who == name and isinstance(packet, PublishPacket) and packet.topic.split("/")[1] == kind
    ]


def test_each_chain_is_asked_about_once() -> None:
    network = make_network()
    publish(network, CHAIN_EVENTS)
    assert len(network.places["bob"].notes) == CHAIN_EVENTS
    assert len(sent(network, "bob", "ask")) == 1
    assert len(sent(network, "alice", "tell")) == 1
    publish(network, 2)
    assert len(sent(network, "bob", "ask")) == 2


def test_members_ask_only_about_true_subscriptions_so_the_broker_recognises_them() -> None:
    """The flaw of the paper that the hardened profile avoids: it never asks."""
    network = make_network(msgspec.structs.replace(PAPER, k_s=3))
    publish(network, 5, 500)
    assert sent(network, "bob", "ask") == []
    publish(network, 5)
    assert len(sent(network, "bob", "ask")) == 1
    hardened = make_network(CONFIG)
    publish(hardened, 5)
    assert bodies_of(hardened.places["bob"].notes) == [b"0", b"1", b"2", b"3", b"4"]
    assert {packet.topic.split("/")[1] for who in ("alice", "bob") for packet in sent(hardened, who, "ask")} == set()


def test_a_publisher_answers_only_allowed_members() -> None:
    allowed = fingerprint(foil_keyring("subscriber", 3, "paper").membership.certificate.leaf.subject).hex()
    network = make_network(msgspec.structs.replace(PAPER, allow=(allowed,)))
    network.add("carol", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    publish(network, 3)
    network.run(5)
    assert network.places["bob"].notes == []
    assert bodies_of(network.places["carol"].notes) == [b"0", b"1", b"2"]
    telling = network.places["alice"].member._teller
    assert telling is not None
    assert telling.denied > 0


def test_a_question_is_repeated_then_given_up_and_held_candidates_are_bounded() -> None:
    network = make_network(msgspec.structs.replace(PAPER, allow=("nobody",), held_max=10))
    publish(network, 30)
    bob = network.places["bob"].member
    assert bob.sizes()["held"] == 10
    network.run(600)
    assert 3 < len(sent(network, "bob", "ask")) < 12
    assert bob.sizes()["held"] == 0


def test_a_late_question_reveals_no_earlier_event() -> None:
    network = make_network(msgspec.structs.replace(PAPER, margin_us=0))
    publish(network, 10)
    network.add("carol", "subscriber").subscribe(All(Label(TOPIC), Range("price", 100, 200)), network.now)
    network.run(5)
    publish(network, 3)
    asking = network.places["carol"].member._asker
    assert asking is not None
    [chain] = asking._known.values()
    assert chain.number >= 10
    assert not chain.covers(9)


def test_false_answers_and_questions_are_refused_and_change_nothing() -> None:
    network = make_network()
    publish(network, 2)
    bob, alice = network.places["bob"].member, network.places["alice"].member
    [ask] = sent(network, "bob", "ask")
    [tell] = sent(network, "alice", "tell")
    for member, packet in ((bob, tell), (alice, ask)):
        peer = next(iter(member._periods)).session.peer
        for payload in (b"", bytes(100), packet.payload[:-1] + b"x"):
            member.receive(mqtt.encode(PublishPacket(packet.topic, payload, 9), Version.MQTT_5), peer, network.now)
    # An old answer that comes again is to no question.
    peer = next(iter(bob._periods)).session.peer
    bob.receive(mqtt.encode(PublishPacket(tell.topic, tell.payload, 9), Version.MQTT_5), peer, network.now)
    assert bob.refused.total() == 4
    assert alice.refused.total() == 3
    publish(network, 2)
    assert bodies_of(network.places["bob"].notes) == [b"0", b"1", b"0", b"1"]


def test_questions_have_one_size_and_name_no_member() -> None:
    network = make_network()
    publish(network, 2)
    [ask] = sent(network, "bob", "ask")
    assert len(ask.payload) == 1024 + 29
    certificate = foil_keyring("subscriber", 2, "paper").membership.certificate
    assert certificate.leaf.subject not in ask.payload


def test_another_body_under_the_same_head_does_not_displace_the_truth() -> None:
    """Names are in plain text: any customer of the broker can publish under them while a subscriber waits for an
    answer."""
    network = make_network()
    network.withheld.append("alice")
    publish(network, 1)
    bob = network.places["bob"].member
    peer = next(iter(bob._periods)).session.peer
    for _, _, packet in list(network.sent):
        if isinstance(packet, PublishPacket) and "/on/" in packet.topic:
            spoilt = packet.payload[:-1] + bytes([packet.payload[-1] ^ 1])
            bob.receive(mqtt.encode(PublishPacket(packet.topic, spoilt, 9), Version.MQTT_5), peer, network.now)
    network.run(0.1)
    network.withheld.clear()
    network.run(5)
    assert bodies_of(network.places["bob"].notes) == [b"0"]


def test_a_member_with_an_expired_membership_gets_no_answer() -> None:
    network = make_network()
    publish(network, 1)
    [ask] = sent(network, "bob", "ask")
    alice = network.places["alice"].member
    period, telling = next(iter(alice._periods)), alice._teller
    assert telling is not None
    [stream] = alice._streams
    leaf = foil_keyring("subscriber", 2, "paper").membership.certificate.leaf
    telling.answer(period, TOPIC, stream, ask.payload, leaf.last * EPOCH_US)
    with pytest.raises(RemoteError):
        telling.answer(period, TOPIC, stream, ask.payload, (leaf.last + 2) * EPOCH_US)


def test_an_expired_member_neither_publishes_nor_reads_nor_answers() -> None:
    network = make_network()
    publish(network, 1)
    old = [packet for who, _, packet in network.sent if who == "alice" and isinstance(packet, PublishPacket)]
    network.now = (foil_keyring("subscriber", 2, "paper").membership.certificate.leaf.last + 2) * EPOCH_US
    network.run(1)
    with pytest.raises(LocalError):
        publish(network, 1)
    alice, bob = network.places["alice"].member, network.places["bob"].member
    [ask] = sent(network, "bob", "ask")
    before = len(sent(network, "alice", "tell"))
    for member, packets in ((alice, [ask]), (bob, old)):
        for packet in packets:
            peer = next(iter(member._periods)).session.peer
            member.receive(
                mqtt.encode(PublishPacket(packet.topic, packet.payload, 9), Version.MQTT_5), peer, network.now
            )
    network.run(5)
    assert len(sent(network, "alice", "tell")) == before
    assert bodies_of(network.places["bob"].notes) == [b"0"]
    network.kill_broker()
    network.start_broker()
    network.run(60)
    with pytest.raises(LocalError):
        bob.subscribe(Label(TOPIC), network.now)


def test_invented_streams_do_not_prevent_questions_about_a_true_one() -> None:
    network = make_network(msgspec.structs.replace(PAPER, held_max=20, seeds_max=20))
    bob = network.places["bob"].member
    peer = next(iter(bob._periods)).session.peer
    network.withheld.append("alice")
    publish(network, 1)
    candidates = [
        packet for _, _, packet in network.sent if isinstance(packet, PublishPacket) and "/on/" in packet.topic
    ]
    for number in range(200):
        forged = number.to_bytes(16, "big") + candidates[0].payload[16:]
        bob.receive(mqtt.encode(PublishPacket(candidates[0].topic, forged, 9), Version.MQTT_5), peer, network.now)
    network.run(0.1)
    assert bob.sizes()["held"] <= 20
    assert bob.sizes()["chains"] <= 10, "what nobody ever answered for has half of the room"
    network.withheld.clear()
    publish(network, 1)
    network.run(60)
    assert b"0" in bodies_of(network.places["bob"].notes)
    for number in range(200, 400):
        forged = number.to_bytes(16, "big") + candidates[0].payload[16:]
        bob.receive(mqtt.encode(PublishPacket(candidates[0].topic, forged, 9), Version.MQTT_5), peer, network.now)
    publish(network, 2 * CHAIN_EVENTS)
    network.run(60)
    assert len(network.places["bob"].notes) > 2 * CHAIN_EVENTS, "nor from what follows"


def test_one_asker_gets_only_a_share_of_the_answers() -> None:
    network = make_network(msgspec.structs.replace(PAPER, seeds_max=32))
    publish(network, 1)
    [ask] = sent(network, "bob", "ask")
    alice = network.places["alice"].member
    telling, period = alice._teller, next(iter(alice._periods))
    assert telling is not None
    [stream] = alice._streams
    network.broker = None
    for _ in range(2):
        telling.answer(period, TOPIC, stream, ask.payload, network.now)
    with pytest.raises(ExcessError):
        telling.answer(period, TOPIC, stream, ask.payload, network.now)
