"""What a broker drops while it stays connected is missed and comes again, and asking tells nothing of what is true."""

from __future__ import annotations

import msgspec
import pytest

from support.parley import CONFIG, SECOND, TOPIC, Parley, bodies, price
from veilcast.foil.event import Head, split
from veilcast.foil.gaps import AHEAD, BEGIN, EVENTS_MAX, STREAMS_MAX, Gaps, Key
from veilcast.sim.mqtt import BrokerConfig
from veilcast.topics import All, Label, Range
from veilcast.wire.mqtt import Publish

KEY = Key(1, "t", b"s" * 16)


def head(number: int, slot: int, candidates: int = 2) -> Head:
    return Head(KEY.stream, number, candidates, slot)


def parley(broker: BrokerConfig | None = None) -> Parley:
    room = Parley(CONFIG, broker)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    return room


def publish(room: Parley, many: int) -> None:
    for number in range(many):
        room.places["alice"].member.publish(price(100, body=b"%d" % number), room.now)
        room.run(0.2)


def requests(room: Parley) -> list[int]:
    """How much had been sent when each request of bob's was."""
    sent = [(who, packet) for who, _, packet in room.sent if isinstance(packet, Publish)]
    return [at for at, (who, packet) in enumerate(sent) if who == "bob" and "/again/" in packet.topic]


def test_what_a_broker_loses_though_it_stays_comes_again() -> None:
    room = parley(BrokerConfig(lose_ppm=100_000))
    publish(room, 60)
    room.run(300)
    lost = {b"%d" % number for number in range(10, 59)} - set(bodies(room.places["bob"].notes))
    assert not lost
    assert len(set(bodies(room.places["bob"].notes))) == len(room.places["bob"].notes), "and nothing comes twice"


def test_without_any_loss_nobody_asks() -> None:
    room = parley()
    before = len(requests(room))
    publish(room, 30)
    room.run(60)
    assert len(requests(room)) == before


def test_a_reader_of_a_range_does_not_ask_for_what_was_not_meant_for_it() -> None:
    room = Parley(CONFIG)
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
        fallen: list[Head] = []

        def dropped(name: str, packet: Publish, slot: int = slot, fallen: list[Head] = fallen) -> bool:
            if name != "bob" or "/on/" not in packet.topic or fallen:
                return False
            seen, _ = split(packet.payload)
            if (seen.number, seen.slot) == (number, slot):
                fallen.append(seen)
            return bool(fallen)

        room.dropped = dropped
        publish(room, 20)
        room.run(20)
        assert fallen
        told.append(requests(room))
    assert all(each == told[0] for each in told)
    assert len(told[0]) == len(requests(parley())) + (number >= BEGIN), "and from the tenth event on, it asks"


def test_a_stranger_who_makes_up_heads_is_believed_a_little_and_ever_more_seldom() -> None:
    gaps = Gaps(2 * SECOND, 600 * SECOND)
    gaps.heard(KEY, head(7, 0), 0)
    assert not len(gaps), "of a stream that nothing true was read of"
    gaps.opened(KEY, 3, 0)
    gaps.heard(KEY, head(4 + AHEAD, 0), 0)
    assert not len(gaps), "so far ahead nobody can be"
    asked, now = 0, 0
    for _ in range(3_600):
        now += SECOND
        gaps.opened(KEY, 3, now)
        gaps.heard(KEY, head(50, 0), now)
        asked += len(gaps.due(now))
    assert 4 <= asked <= 30, "in an hour"


def test_what_is_remembered_is_bounded() -> None:
    gaps = Gaps(SECOND, 600 * SECOND)
    for stream in range(2 * STREAMS_MAX):
        key = Key(1, "t", stream.to_bytes(16, "big"))
        for number in range(0, 3 * EVENTS_MAX, 100):
            gaps.opened(key, number, 0)
            for each in range(number, number + 100):
                gaps.heard(key, Head(key.stream, each, 2, 0), 0)
    assert len(gaps) <= STREAMS_MAX * (EVENTS_MAX + 1)
    gaps.ended(1)
    assert not len(gaps)
    assert gaps.next_us() is None


def test_what_nobody_keeps_any_more_is_not_asked_for() -> None:
    gaps = Gaps(SECOND, 10 * SECOND)
    gaps.opened(KEY, 0, 0)
    gaps.heard(KEY, head(11, 0), 0)
    now = 0
    while (when := gaps.next_us()) is not None:
        now = when
        gaps.due(now)
        assert now < 60 * SECOND
    assert now > 10 * SECOND


def test_who_no_longer_reads_all_misses_nothing() -> None:
    config = msgspec.structs.replace(CONFIG, winnow_us=1)
    room = Parley(config)
    room.add("alice", "publisher")
    bob = room.add("bob", "subscriber")
    number = bob.subscribe(Label(TOPIC), room.now)
    room.run(1)
    publish(room, 12)
    bob.unsubscribe(number, room.now)
    assert bob.sizes()["gaps"] == 0
