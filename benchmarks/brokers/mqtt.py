"""A plain member of an MQTT broker (MQTT 3.1.1, quality of service 1), as a machine: what others are compared with,
moved in the same turns by the same driver, for an owner who does the same with both.

As much of a member as a benchmark needs: one connection, no loss, nothing kept. A frame is a packet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from veilcast.cli.transports import mqtt_packets
from veilcast.machine import (
    Address,
    Connect,
    Delivered,
    Event,
    Frame,
    Interest,
    Machine,
    Note,
    Publication,
    Record,
    Settled,
    Waiting,
)
from veilcast.net.mqtt import MqttDriver, MqttSetup
from veilcast.topics import TOPIC, Conjunction, Equal
from veilcast.wire import mqtt
from veilcast.wire.mqtt import Packet, PubackPacket, PublishPacket, SubackPacket, SubscribePacket, Version


class MqttMember:
    """What `machine.Member` has. Its broker is the only peer."""

    def __init__(self, name: str, broker: Address) -> None:
        self._name, self._broker, self._is_up = name, broker, False
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque([Connect(broker)])
        self._last = 0
        self._unwritten: dict[int, Publication] = {}
        self._numbers: dict[str, int] = {}

    def publish(self, publication: Publication, now: int) -> int:
        record = self._next()
        self._unwritten[record] = publication
        self._events.append(Record(record, publication.body))
        return record

    def stored(self, record: int, now: int) -> None:
        publication = self._unwritten.pop(record)
        self._post(PublishPacket(str(publication.pairs[0][1]), publication.body, record))

    def withdraw(self, record: int, now: int) -> None:
        raise NotImplementedError

    def subscribe(self, interest: Interest, now: int) -> int:
        number, topic = self._next(), topic_of(interest)
        self._numbers[topic] = number
        self._post(SubscribePacket(number, (topic,)))
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        raise NotImplementedError

    def acknowledge(self, note: bytes, now: int) -> None:
        self._post(PubackPacket(int.from_bytes(note, "big")))

    def receive(self, data: bytes, source: Address, now: int) -> None:
        match mqtt.decode(data, VERSION):
            case PublishPacket(topic, payload, number):
                note = Note(number.to_bytes(2, "big"), Publication(((TOPIC, topic),), payload))
                self._events.append(Delivered(self._numbers[topic], note))
            case PubackPacket(number):
                self._events.append(Settled(number))
            case SubackPacket(number):
                self._events.append(Waiting(number, now))

    def peer_up(self, peer: Address, now: int) -> None:
        self._is_up = True
        self._frames.appendleft(self._frame(mqtt.ConnectPacket(self._name, VERSION, clean=True)))

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))] if self._is_up else []

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def _post(self, packet: Packet) -> None:
        self._frames.append(self._frame(packet))

    def _frame(self, packet: Packet) -> Frame:
        return Frame(self._broker, mqtt.encode(packet, VERSION))

    def _next(self) -> int:
        self._last = self._last % mqtt.NUMBER_MAX + 1
        return self._last


def drive(machine: Machine, act_on: Callable[[Event], object]) -> MqttDriver:
    """A connection in clear text to a broker on this machine."""
    return MqttDriver(machine, broker=MqttSetup(mqtt_packets()), act_on=act_on)


def topic_of(interest: Interest) -> str:
    assert isinstance(interest, Conjunction)
    (label,) = interest.constraints
    assert isinstance(label, Equal)
    return label.text


VERSION = Version.MQTT_3_1_1
