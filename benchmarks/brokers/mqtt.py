"""A member of an MQTT broker (MQTT 3.1.1, quality of service 1), as a machine: what a client of the relay is compared
with, moved in the same turns by the same driver, for an owner who does the same with both.

As much of the protocol as a benchmark needs: one connection, no loss, nothing kept. A frame is a packet.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from veilcast.machine import (
    Address,
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
from veilcast.net.turns import Counts, Turns
from veilcast.topics import TOPIC, Conjunction, Equal


class MqttMember:
    """What `machine.Member` has. Its broker is the only peer."""

    def __init__(self, name: str) -> None:
        self._frames = deque([Frame(BROKER, _packet(CONNECT, _HELLO + _text(name)))])
        self._events: deque[Event] = deque()
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
        ((_, topic),) = publication.pairs
        self._post(PUBLISH | AT_LEAST_ONCE, _text(str(topic)) + _NUMBER.pack(record) + publication.body)

    def withdraw(self, record: int, now: int) -> None:
        raise NotImplementedError

    def subscribe(self, interest: Interest, now: int) -> int:
        number, topic = self._next(), _topic_of(interest)
        self._numbers[topic] = number
        self._post(SUBSCRIBE, _NUMBER.pack(number) + _text(topic) + b"\x01")
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        raise NotImplementedError

    def acknowledge(self, note: bytes, now: int) -> None:
        self._post(PUBACK, note)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        kind, body = data[0] & 0xF0, _body(data)
        if kind == PUBLISH:
            end = 2 + _NUMBER.unpack_from(body)[0]
            topic = body[2:end].decode()
            note = Note(body[end : end + 2], Publication(((TOPIC, topic),), body[end + 2 :]))
            self._events.append(Delivered(self._numbers[topic], note))
        elif kind == PUBACK:
            self._events.append(Settled(_NUMBER.unpack(body)[0]))
        elif kind == SUBACK & 0xF0:
            self._events.append(Waiting(_NUMBER.unpack_from(body)[0], now))

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def _post(self, kind: int, body: bytes) -> None:
        self._frames.append(Frame(BROKER, _packet(kind, body)))

    def _next(self) -> int:
        self._last = self._last % 0xFFFF + 1
        return self._last


class PacketCounts(Counts):
    unit = "packets"


class MqttDriver(Turns):
    """The member's connection, in the clear."""

    def __init__(self, machine: Machine, act_on: Callable[[Event], object], port: int) -> None:
        super().__init__(machine, act_on, None)
        self.counts = PacketCounts()
        self._port = port
        self._heard = bytearray()
        self._unsent: deque[memoryview] = deque()

    def _start(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def _stop(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    def _send(self, frames: list[Frame]) -> None:
        self.counts.sent += len(frames)
        self._unsent.append(memoryview(b"".join([frame.data for frame in frames])))
        self._push()

    def _tell(self, event: Event, now: int) -> None:
        self._act_on(event)

    def _push(self) -> None:
        self._loop.remove_writer(self._socket)
        try:
            while self._unsent:
                sent = self._socket.sendmsg(islice(self._unsent, 64))
                while sent:
                    piece = self._unsent.popleft()
                    if sent < len(piece):
                        self._unsent.appendleft(piece[sent:])
                    sent -= min(sent, len(piece))
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._push)

    def _readable(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise SystemExit("the broker has closed the connection")
        self._heard += data
        now = self.now()
        for packet in _packets(self._heard):
            self.counts.received += 1
            self._machine.receive(packet, BROKER, now)
        self._turn(now)


def _packet(kind: int, body: bytes) -> bytes:
    length, size = bytearray(), len(body)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes((kind,)) + length + body


def _packets(heard: bytearray) -> Iterator[bytes]:
    """Take the packets that are whole."""
    start = 0
    while (end := _end(heard, start)) is not None and end <= len(heard):
        yield bytes(heard[start:end])
        start = end
    del heard[:start]


def _end(heard: bytes | bytearray, start: int) -> int | None:
    size = shift = 0
    for place in range(start + 1, min(start + 5, len(heard))):
        size |= (heard[place] & 0x7F) << shift
        shift += 7
        if heard[place] < 0x80:
            return place + 1 + size
    return None


def _body(packet: bytes) -> bytes:
    place = 1
    while packet[place] >= 0x80:
        place += 1
    return packet[place + 1 :]


def _text(text: str) -> bytes:
    data = text.encode()
    return _NUMBER.pack(len(data)) + data


def _topic_of(interest: Interest) -> str:
    assert isinstance(interest, Conjunction)
    (label,) = interest.constraints
    assert isinstance(label, Equal)
    return label.text


BROKER: Final = Address("broker")
CONNECT: Final = 0x10
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
AT_LEAST_ONCE: Final = 0x02
_HELLO: Final = b"\x00\x04MQTT\x04\x02\x00\x00"
"""MQTT 3.1.1, a clean session, and no time after which silence is the end."""
_NUMBER: Final = struct.Struct(">H")
