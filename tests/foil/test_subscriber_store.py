"""A restarted subscriber does not deliver a read notification again, whatever the broker sends."""

from __future__ import annotations

import msgspec

from support.foil_network import CONFIG, TOPIC, FoilNetwork, bodies_of, price_publication
from veilcast.foil.publisher_store import PublisherStore
from veilcast.foil.subscriber_store import IDS_PER_RECORD, WRITE_PAUSE_US, SubscriberStore
from veilcast.machine import Record, Settled
from veilcast.topics import Label
from veilcast.wire import mqtt
from veilcast.wire.mqtt import PublishPacket, Version


def test_acknowledged_notifications_are_not_delivered_again_after_a_restart() -> None:
    network = FoilNetwork(CONFIG)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    for number in range(5):
        network.places["alice"].member.publish(price_publication(100 + number, body=b"%d" % number), network.now)
        network.run(0.5)
    network.run(2)
    bob = network.restart("bob")
    bob.subscribe(Label(TOPIC), network.now)
    network.run(10)
    assert sorted(bodies_of(network.places["bob"].notes)) == [b"0", b"1", b"2", b"3", b"4"], (
        "by repeats that it asked for"
    )
    old = [packet for who, _, packet in network.sent if who == "alice" and isinstance(packet, PublishPacket)]
    peer = next(iter(bob._periods)).session.peer
    for packet in old:
        bob.receive(mqtt.encode(msgspec.structs.replace(packet, again=False), Version.MQTT_5), peer, network.now)
    network.run(1)
    assert len(network.places["bob"].notes) == 5, "by a broker that has all that passed"
    network.places["alice"].member.publish(price_publication(7, body=b"new"), network.now)
    network.run(1)
    assert bodies_of(network.places["bob"].notes)[-1] == b"new"


def test_unacknowledged_notifications_are_delivered_after_a_restart() -> None:
    network = FoilNetwork(CONFIG)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(Label(TOPIC), network.now)
    network.run(1)
    network.acknowledges = False
    network.places["alice"].member.publish(price_publication(100, body=b"x"), network.now)
    network.run(2)
    network.restart("bob").subscribe(Label(TOPIC), network.now)
    network.run(5)
    assert bodies_of(network.places["bob"].notes) == [b"x", b"x"]


def live(disk: dict[int, bytes], ids: list[bytes], seen_max: int, now: int) -> SubscriberStore:
    """One run that reads these, one per second."""
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


def test_many_short_runs_fill_one_record_and_the_disk_is_bounded() -> None:
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


def test_ids_that_follow_soon_are_written_together() -> None:
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
