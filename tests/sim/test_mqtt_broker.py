"""The simulated broker behaves like real ones: sessions outlive streams, messages wait, and a kill loses its memory."""

from __future__ import annotations

import random

import pytest

from veilcast.machine import Address, Disconnect, Record
from veilcast.sim.foil.mqtt_broker import MqttBroker, MqttBrokerConfig
from veilcast.wire import mqtt
from veilcast.wire.mqtt import (
    ConnackPacket,
    ConnectPacket,
    Packet,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
    Version,
)

FIVE = Version.MQTT_5


class Desk:
    """A broker and its clients, packet by packet."""

    def __init__(self, **told: int) -> None:
        self.config = MqttBrokerConfig(**told)
        self.broker = MqttBroker(self.config, random.Random(1), 0)
        self.version = FIVE
        self.disk: dict[int, bytes] = {}
        self.closed: list[str] = []

    def connect(self, name: str, client: str, *, clean: bool = False) -> list[Packet]:
        self.broker.peer_up(Address(name), 0)
        return self.say(name, ConnectPacket(client, self.version, clean=clean)).get(name, [])

    def say(self, name: str, packet: Packet, now: int = 0) -> dict[str, list[Packet]]:
        """All packets that the broker sends after this one."""
        return self.hear(name, mqtt.encode(packet, self.version), now)

    def hear(self, name: str, data: bytes, now: int = 0) -> dict[str, list[Packet]]:
        self.broker.receive(data, Address(name), now)
        return self.look()

    def look(self) -> dict[str, list[Packet]]:
        told: dict[str, list[Packet]] = {}
        for frame in self.broker.frames_to_send(0, 1_000):
            told.setdefault(frame.destination, []).append(mqtt.decode(frame.data, self.version))
        while (event := self.broker.next_event()) is not None:
            match event:
                case Disconnect(peer):
                    self.closed.append(peer)
                case Record(record, data):
                    self.disk[record] = data
        return told

    def kill(self) -> None:
        self.broker = MqttBroker(self.config, random.Random(2), 0, self.disk)


def reader(**told: int) -> Desk:
    desk = Desk(**told)
    desk.connect("r", "reader")
    desk.say("r", SubscribePacket(1, ("a/+/#",)))
    desk.connect("w", "writer")
    return desk


def test_what_matches_is_brought_and_acknowledged_to_its_publisher() -> None:
    desk = reader()
    told = desk.say("w", PublishPacket("a/b/c", b"x", 7))
    assert told == {"w": [PubackPacket(7)], "r": [PublishPacket("a/b/c", b"x", 1)]}
    assert desk.say("w", PublishPacket("b", b"x", 8)) == {"w": [PubackPacket(8)]}
    desk.say("r", UnsubscribePacket(2, ("a/+/#",)))
    assert desk.say("w", PublishPacket("a/b", b"x", 9)) == {"w": [PubackPacket(9)]}


def test_a_session_outlives_its_stream_and_gets_what_it_missed_and_what_it_had_not_acknowledged() -> None:
    desk = reader()
    desk.say("w", PublishPacket("a/b", b"1", 7))
    desk.broker.peer_lost(Address("r"), 0)
    desk.say("w", PublishPacket("a/b", b"2", 8))
    assert desk.connect("r2", "reader") == [
        ConnackPacket(present=True, receive_max=20),
        PublishPacket("a/b", b"1", 1, again=True),
        PublishPacket("a/b", b"2", 2),
    ]


def test_a_clean_start_and_an_end_without_expiry_forget_the_session() -> None:
    desk = reader()
    assert desk.connect("r2", "reader", clean=True) == [ConnackPacket(receive_max=20)]
    assert desk.closed == ["r"], "one stream for a client"
    desk.say("r2", mqtt.DisconnectPacket(expiry_s=0))
    assert desk.connect("r3", "reader") == [ConnackPacket(receive_max=20)]


def test_messages_wait_for_room_under_way_and_beyond_the_queue_they_are_lost() -> None:
    desk = reader(window=2, queue_max=3)
    brought = [desk.say("w", PublishPacket("a/b", b"%d" % n, n + 1)).get("r", []) for n in range(8)]
    assert [len(each) for each in brought] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert desk.say("r", PubackPacket(1))["r"] == [PublishPacket("a/b", b"2", 3)]
    assert desk.broker.sizes()["queue"] == 2


def test_a_kill_loses_everything_or_all_since_the_last_picture() -> None:
    desk = reader()
    desk.kill()
    assert desk.connect("r", "reader") == [ConnackPacket(receive_max=20)]
    desk = reader(save_us=10)
    desk.say("w", PublishPacket("a/b", b"1", 1))
    desk.broker.handle_timer(10)
    desk.look()
    desk.say("w", PublishPacket("a/b", b"2", 2))
    desk.kill()
    assert desk.connect("r", "reader") == [ConnackPacket(present=True, receive_max=20), PublishPacket("a/b", b"1", 1)]


def test_one_who_does_not_acknowledge_is_hung_up_on_and_gets_it_on_the_next_stream() -> None:
    desk = reader(patience_us=100)
    desk.say("w", PublishPacket("a/b", b"1", 1), now=50)
    assert desk.broker.next_timer() == 150
    desk.broker.handle_timer(150)
    desk.look()
    assert desk.closed == ["r"]
    assert PublishPacket("a/b", b"1", 1, again=True) in desk.connect("r2", "reader")


@pytest.mark.parametrize("bad", [b"", b"\xff\xff", mqtt.encode(SubackPacket(1, (1,)), FIVE)])
def test_who_says_what_no_client_says_is_hung_up_on(bad: bytes) -> None:
    desk = reader()
    desk.hear("w", bad)
    assert desk.closed == ["w"]
    desk.broker.peer_up(Address("n"), 0)
    desk.say("n", PingreqPacket())
    assert desk.closed == ["w", "n"], "nothing comes before the greeting"


def test_the_rest_of_what_a_client_asks_is_answered_in_both_versions() -> None:
    for version, codes in ((Version.MQTT_3_1_1, ()), (FIVE, (0,))):
        desk = Desk()
        desk.version = version
        assert isinstance(desk.connect("x", "client")[0], ConnackPacket)
        assert desk.say("x", PingreqPacket()) == {"x": [PingrespPacket()]}
        assert desk.say("x", UnsubscribePacket(3, ("a",))) == {"x": [UnsubackPacket(3, codes)]}


def test_mischief_brings_things_twice_out_of_order_or_not_at_all() -> None:
    twice = reader(duplicate_ppm=1_000_000)
    assert len(twice.say("w", PublishPacket("a/b", b"1", 1))["r"]) == 2
    lost = reader(lose_ppm=1_000_000)
    assert lost.say("w", PublishPacket("a/b", b"1", 1)) == {"w": [PubackPacket(1)]}
    mixed = reader(reorder_ppm=1_000_000, window=1)
    for number in range(1, 5):
        mixed.say("w", PublishPacket("a/b", b"%d" % number, number))
    came = [mixed.say("r", PubackPacket(number))["r"][0] for number in range(1, 4)]
    assert [packet.payload for packet in came if isinstance(packet, PublishPacket)] == [b"4", b"3", b"2"]
