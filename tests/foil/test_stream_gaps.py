"""Events that a connected broker drops are noticed and repeated, and the requests reveal nothing about the truth."""

from __future__ import annotations

import msgspec
import pytest

from support.foil_network import CONFIG, SECOND, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.foil.event import CandidateHead, split_candidate
from veilcast.foil.stream_gaps import (
    EVENTS_MAX,
    HEADS_AHEAD_MAX,
    STREAMS_MAX,
    WATCH_FROM_MULTIPLE,
    StreamGaps,
    StreamKey,
)
from veilcast.sim.foil.mqtt_broker import MqttBrokerConfig
from veilcast.topics import All, Label, Range
from veilcast.wire.mqtt import PublishPacket

KEY = StreamKey(1, "t", b"s" * 16)


def head(number: int, slot: int, candidates: int = 2) -> CandidateHead:
    return CandidateHead(KEY.stream, number, candidates, slot)


def make_network(broker: MqttBrokerConfig | None = None) -> FoilNetwork:
    network = FoilNetwork(CONFIG, broker)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    return network


def publish(network: FoilNetwork, many: int) -> None:
    for number in range(many):
        network.places["alice"].member.publish(price_publication(100, body=b"%d" % number), network.now)
        network.run(0.2)


def requests(network: FoilNetwork) -> list[int]:
    """The number of messages sent before each request of bob's."""
    sent = [(who, packet) for who, _, packet in network.sent if isinstance(packet, PublishPacket)]
    return [at for at, (who, packet) in enumerate(sent) if who == "bob" and "/again/" in packet.topic]


def test_events_dropped_by_a_connected_broker_are_repeated() -> None:
    network = make_network(MqttBrokerConfig(lose_ppm=100_000))
    publish(network, 60)
    network.run(300)
    lost = {b"%d" % number for number in range(10, 59)} - set(bodies_of(network.places["bob"].notes))
    assert not lost
    assert len(set(bodies_of(network.places["bob"].notes))) == len(network.places["bob"].notes), (
        "and nothing comes twice"
    )


def test_without_loss_no_subscriber_asks() -> None:
    network = make_network()
    before = len(requests(network))
    publish(network, 30)
    network.run(60)
    assert len(requests(network)) == before


def test_a_subscriber_to_a_range_does_not_ask_for_other_events() -> None:
    network = FoilNetwork(CONFIG)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(All(Label(TOPIC), Range("price", 0, 90)), network.now)
    network.run(1)
    before = len(requests(network))
    publish(network, 30)
    network.run(60)
    assert len(requests(network)) == before


@pytest.mark.parametrize("number", [0, 5, 12, 15])
def test_requests_do_not_depend_on_which_candidate_was_dropped(number: int) -> None:
    """The adversary drops one candidate of an event; only the subscriber knows whether it was the true one."""
    told = []
    for slot in range(CONFIG.k_p + 1):
        network = make_network()
        fallen: list[CandidateHead] = []

        def dropped(name: str, packet: PublishPacket, slot: int = slot, fallen: list[CandidateHead] = fallen) -> bool:
            if name != "bob" or "/on/" not in packet.topic or fallen:
                return False
            seen, _ = split_candidate(packet.payload)
            if (seen.number, seen.slot) == (number, slot):
                fallen.append(seen)
            return bool(fallen)

        network.dropped = dropped
        publish(network, 20)
        network.run(20)
        assert fallen
        told.append(requests(network))
    assert all(each == told[0] for each in told)
    assert len(told[0]) == len(requests(make_network())) + (number >= WATCH_FROM_MULTIPLE), (
        "and from the tenth event on, it asks"
    )


def test_invented_heads_cause_few_and_ever_rarer_requests() -> None:
    gaps = StreamGaps(2 * SECOND, 600 * SECOND)
    gaps.received(KEY, head(7, 0), 0)
    assert not len(gaps), "of a stream that nothing true was read of"
    gaps.opened_truth(KEY, 3, 0)
    gaps.received(KEY, head(4 + HEADS_AHEAD_MAX, 0), 0)
    assert not len(gaps), "so far ahead nobody can be"
    asked, now = 0, 0
    for _ in range(3_600):
        now += SECOND
        gaps.opened_truth(KEY, 3, now)
        gaps.received(KEY, head(50, 0), now)
        asked += len(gaps.due(now))
    assert 4 <= asked <= 30, "in an hour"


def test_watched_streams_and_events_are_bounded() -> None:
    gaps = StreamGaps(SECOND, 600 * SECOND)
    for stream in range(2 * STREAMS_MAX):
        key = StreamKey(1, "t", stream.to_bytes(16, "big"))
        for number in range(0, 3 * EVENTS_MAX, 100):
            gaps.opened_truth(key, number, 0)
            for each in range(number, number + 100):
                gaps.received(key, CandidateHead(key.stream, each, 2, 0), 0)
    assert len(gaps) <= STREAMS_MAX * (EVENTS_MAX + 1)
    gaps.end_period(1)
    assert not len(gaps)
    assert gaps.next_us() is None


def test_expired_events_are_not_asked_for() -> None:
    gaps = StreamGaps(SECOND, 10 * SECOND)
    gaps.opened_truth(KEY, 0, 0)
    gaps.received(KEY, head(11, 0), 0)
    now = 0
    while (when := gaps.next_us()) is not None:
        now = when
        gaps.due(now)
        assert now < 60 * SECOND
    assert now > 10 * SECOND


def test_a_subscriber_that_no_longer_reads_the_whole_topic_misses_nothing() -> None:
    config = msgspec.structs.replace(CONFIG, winnow_us=1)
    network = FoilNetwork(config)
    network.add("alice", "publisher")
    bob = network.add("bob", "subscriber")
    number = bob.subscribe(Label(TOPIC), network.now)
    network.run(1)
    publish(network, 12)
    bob.unsubscribe(number, network.now)
    assert bob.sizes()["gaps"] == 0
