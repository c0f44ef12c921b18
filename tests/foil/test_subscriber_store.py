"""A reader that starts anew is not delivered again what it had read, whoever brings it."""

from __future__ import annotations

import msgspec

from support.foil_network import CONFIG, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.foil.publisher_store import PublisherStore
from veilcast.foil.subscriber_store import IDS_PER_RECORD, WRITE_PAUSE_US, SubscriberStore
from veilcast.machine import Record, Settled
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version


def test_what_was_acknowledged_is_not_delivered_to_the_next_life_though_it_is_repeated_and_replayed() -> None:
    room = FoilNetwork(CONFIG)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    for number in range(5):
        room.places["alice"].member.publish(price_publication(100 + number, body=b"%d" % number), room.now)
        room.run(0.5)
    room.run(2)
    bob = room.restart("bob")
    bob.subscribe(Label(TOPIC), room.now)
    room.run(10)
    assert sorted(bodies_of(room.places["bob"].notes)) == [b"0", b"1", b"2", b"3", b"4"], "by repeats that it asked for"
    old = [packet for who, _, packet in room.sent if who == "alice" and isinstance(packet, PublishPacket)]
    peer = next(iter(bob._spans)).session.peer
    for packet in old:
        bob.receive(mqtt.encode(msgspec.structs.replace(packet, again=False), Version.MQTT_5), peer, room.now)
    room.run(1)
    assert len(room.places["bob"].notes) == 5, "by a broker that has all that passed"
    room.places["alice"].member.publish(price_publication(7, body=b"new"), room.now)
    room.run(1)
    assert bodies_of(room.places["bob"].notes)[-1] == b"new"


def test_what_nobody_acknowledged_is_delivered_to_the_next_life() -> None:
    room = FoilNetwork(CONFIG)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(Label(TOPIC), room.now)
    room.run(1)
    room.acknowledges = False
    room.places["alice"].member.publish(price_publication(100, body=b"x"), room.now)
    room.run(2)
    room.restart("bob").subscribe(Label(TOPIC), room.now)
    room.run(5)
    assert bodies_of(room.places["bob"].notes) == [b"x", b"x"]


def live(disk: dict[int, bytes], ids: list[bytes], seen_max: int, now: int) -> SubscriberStore:
    """One life that reads these, one a second."""
    keeping = PublisherStore(disk, 10, 10, now)
    remembering = SubscriberStore(keeping, seen_max)
    for note in ids:
        now += WRITE_PAUSE_US
        remembering.add(note, now)
    while (event := keeping.next_event()) is not None:
        if isinstance(event, Record):
            disk[event.record] = event.data
        elif isinstance(event, Settled):
            disk.pop(event.record)
    return remembering


def test_many_short_lives_fill_one_record_and_the_disk_is_bounded() -> None:
    disk: dict[int, bytes] = {}
    ids = [number.to_bytes(16, "big") for number in range(5 * IDS_PER_RECORD)]
    for number in range(20):
        live(disk, ids[number : number + 1], IDS_PER_RECORD, number)
    assert len(disk) == 1
    assert all(note in live(disk, [], IDS_PER_RECORD, 0) for note in ids[:20])
    live(disk, ids[20:], IDS_PER_RECORD, 0)
    assert len(disk) <= 3
    last = live(disk, [], IDS_PER_RECORD, 0)
    assert len(last) <= 2 * IDS_PER_RECORD
    assert all(note in last for note in ids[-IDS_PER_RECORD:])
    assert ids[0] not in last


def test_what_follows_soon_is_written_together() -> None:
    keeping = PublisherStore({}, 10, 10, 0)
    remembering = SubscriberStore(keeping, 1_000)
    for number in range(100):
        remembering.add(number.to_bytes(16, "big"), WRITE_PAUSE_US)
    assert isinstance(keeping.next_event(), Record)
    assert keeping.next_event() is None
    assert remembering.next_us() == 2 * WRITE_PAUSE_US
    remembering.handle(2 * WRITE_PAUSE_US)
    assert isinstance(keeping.next_event(), Record)
    assert remembering.next_us() is None
