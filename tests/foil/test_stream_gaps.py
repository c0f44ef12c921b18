"""What a broker drops while it stays connected is missed and comes again, and asking tells nothing of what is true."""

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


def parley(broker: MqttBrokerConfig | None = None) -> FoilNetwork:
    room = FoilNetwork(CONFIG, broker)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    return room


def publish(room: FoilNetwork, many: int) -> None:
    for number in range(many):
        room.places["alice"].member.publish(price_publication(100, body=b"%d" % number), room.now)
        room.run(0.2)


def requests(room: FoilNetwork) -> list[int]:
    """How much had been sent when each request of bob's was."""
    sent = [(who, packet) for who, _, packet in room.sent if isinstance(packet, PublishPacket)]
    return [at for at, (who, packet) in enumerate(sent) if who == "bob" and "/again/" in packet.topic]


def test_what_a_broker_loses_though_it_stays_comes_again() -> None:
    room = parley(MqttBrokerConfig(lose_ppm=100_000))
    publish(room, 60)
    room.run(300)
    lost = {b"%d" % number for number in range(10, 59)} - set(bodies_of(room.places["bob"].notes))
    assert not lost
    assert len(set(bodies_of(room.places["bob"].notes))) == len(room.places["bob"].notes), "and nothing comes twice"


def test_without_any_loss_nobody_asks() -> None:
    room = parley()
    before = len(requests(room))
    publish(room, 30)
    room.run(60)
    assert len(requests(room)) == before


def test_a_reader_of_a_range_does_not_ask_for_what_was_not_meant_for_it() -> None:
    room = FoilNetwork(CONFIG)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(All(Label(TOPIC), Range("price", 0, 90)), room.now)
    room.run(1)
    before = len(requests(room))
    publish(room, 30)
    room.run(60)
    assert len(requests(room)) == before


@pytest.mark.parametrize("number", [0, 5, 12, 15])
def test_whichever_candidate_is_dropped_the_reader_asks_at_the_same_moment_or_not_at_all(number: int) -> None:
    """The attacker drops one candidate of an event, and the true one of these is known only to the reader."""
    told = []
    for slot in range(CONFIG.k_p + 1):
        room = parley()
        fallen: list[CandidateHead] = []

        def dropped(name: str, packet: PublishPacket, slot: int = slot, fallen: list[CandidateHead] = fallen) -> bool:
            if name != "bob" or "/on/" not in packet.topic or fallen:
                return False
            seen, _ = split_candidate(packet.payload)
            if (seen.number, seen.slot) == (number, slot):
                fallen.append(seen)
            return bool(fallen)

        room.dropped = dropped
        publish(room, 20)
        room.run(20)
        assert fallen
        told.append(requests(room))
    assert all(each == told[0] for each in told)
    assert len(told[0]) == len(requests(parley())) + (number >= WATCH_FROM_MULTIPLE), (
        "and from the tenth event on, it asks"
    )


def test_a_stranger_who_makes_up_heads_is_believed_a_little_and_ever_more_seldom() -> None:
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


def test_what_is_remembered_is_bounded() -> None:
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


def test_what_nobody_keeps_any_more_is_not_asked_for() -> None:
    gaps = StreamGaps(SECOND, 10 * SECOND)
    gaps.opened_truth(KEY, 0, 0)
    gaps.received(KEY, head(11, 0), 0)
    now = 0
    while (when := gaps.next_us()) is not None:
        now = when
        gaps.due(now)
        assert now < 60 * SECOND
    assert now > 10 * SECOND


def test_who_no_longer_reads_all_misses_nothing() -> None:
    config = msgspec.structs.replace(CONFIG, winnow_us=1)
    room = FoilNetwork(config)
    room.add("alice", "publisher")
    bob = room.add("bob", "subscriber")
    number = bob.subscribe(Label(TOPIC), room.now)
    room.run(1)
    publish(room, 12)
    bob.unsubscribe(number, room.now)
    assert bob.sizes()["gaps"] == 0
