"""Fields of MQTT packets: numbers, texts, topics, filters, lengths of variable size, and the properties of version 5.

Every number is big-endian. A length has seven bits a byte, lowest first, at most four bytes, and no more than it needs.
A property is a number and a value whose type the number decides. Each stands at most once in a packet, except user
properties, and only in packets it belongs to. Properties that decide how we talk are kept; the rest are checked and
dropped.

Topics and filters are levels with `/` between them; in a filter, `+` stands for any one level and `#` for any rest. A
filter that ends in `/#` also takes the level before it. Neither `+` nor `#` at the beginning takes a topic that begins
with `$`: those are a broker's own. Both are texts of 1 to 65,535 bytes of UTF-8 without U+0000.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from veilcast.errors import MalformedError


def check_text(text: str) -> bytes:
    """The bytes of a text. Raises `ValueError` if MQTT has no such text."""
    data = text.encode()
    if len(data) > TEXT_MAX or "\0" in text:
        raise ValueError("a text that is too long or holds U+0000")
    return data


def check_topic(topic: str) -> bytes:
    if not topic or "+" in topic or "#" in topic:
        raise ValueError("a topic that is empty or holds a wildcard")
    return check_text(topic)


def check_filter(pattern: str) -> bytes:
    if not pattern:
        raise ValueError("an empty filter")
    if "+" in pattern or "#" in pattern:
        *inner, last = pattern.split("/")
        if any("#" in level for level in inner) or any(
            len(level) > 1 and ("+" in level or "#" in level) for level in (*inner, last)
        ):
            raise ValueError("a filter with a wildcard in the wrong place")
    return check_text(pattern)


def filter_matches(pattern: str, topic: str) -> bool:
    """True if a broker sends a publication on a legal topic to a client with this legal filter."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(want in ("+", level) for want, level in zip(wanted, levels, strict=True))


class PacketKind(IntEnum):
    """The upper half of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class Property(IntEnum):
    """The properties that decide how we talk."""

    EXPIRY = 0x11
    KEEP_ALIVE = 0x13
    RECEIVE_MAX = 0x21
    QOS_MAX = 0x24
    PACKET_MAX = 0x27
    WILDCARDS = 0x28


def encode_length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    if size > LENGTH_MAX:
        raise ValueError("a length beyond four bytes")
    coded = bytearray()
    while size >= 0x80:
        coded.append(size & 0x7F | 0x80)
        size >>= 7
    coded.append(size)
    return bytes(coded)


def read_length(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int] | None:
    """A length and the index behind it; None if more bytes must come first."""
    size = 0
    for place in range(LENGTH_BYTES):
        if at + place >= len(data):
            return None
        byte = data[at + place]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if not byte and place:
                raise MalformedError("a length with more bytes than it needs")
            return size, at + place + 1
    raise MalformedError("a length beyond four bytes")


def encode_short(number: int) -> bytes:
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError("a number beyond two bytes")
    return _SHORT.pack(number)


def encode_text(value: str) -> bytes:
    return encode_prefixed(check_text(value))


def encode_prefixed(data: bytes) -> bytes:
    if len(data) > TEXT_MAX:
        raise ValueError("a field beyond two bytes of length")
    return _SHORT.pack(len(data)) + data


def encode_properties(values: Mapping[Property, int | None]) -> bytes:
    """The properties of a packet, without those that are None."""
    body = b"".join(
        bytes((number,)) + _encode_number(value, _SIZES[number])
        for number, value in values.items()
        if value is not None
    )
    return encode_length(len(body)) + body


class FieldReader:
    """Reads one packet from front to back. Raises `MalformedError` where the packet is not as it must be."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def byte(self) -> int:
        return self.number(1)

    def short(self) -> int:
        return self.number(2)

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def take(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._data):
            raise MalformedError("a packet that ends too early")
        self._at = end
        return self._data[start:end]

    def prefixed(self) -> bytes:
        return self.take(self.short())

    def text(self) -> str:
        try:
            value = self.prefixed().decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a text that is not UTF-8") from error
        if "\0" in value:
            raise MalformedError("a text that holds U+0000")
        return value

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def check_end(self) -> None:
        if self.has_more:
            raise MalformedError("a packet that goes on after its end")

    def properties(self, kind: PacketKind) -> dict[Property, int]:
        """The properties of a packet that we keep."""
        section = FieldReader(self.take(self._length()), 0)
        kept: dict[Property, int] = {}
        seen: set[int] = set()
        while section.has_more:
            number = section.byte()
            if kind not in _PLACES.get(number, ()):
                raise MalformedError("a property in a packet that has none such")
            if number in seen and number != _OF_USERS:
                raise MalformedError("a property that stands twice")
            seen.add(number)
            value = section.value(number)
            if number in _KEPT:
                kept[Property(number)] = value
        return kept

    def value(self, number: int) -> int:
        if number in _TEXTS:
            self.text()
        elif number in _BLOBS:
            self.prefixed()
        elif number == _OF_USERS:
            self.text()
            self.text()
        else:
            value = self.number(_SIZES[number])
            if (number in _POSITIVE and not value) or (number in _FLAGS and value > 1):
                raise MalformedError("a property with a value it cannot have")
            return value
        return 0

    def _length(self) -> int:
        found = read_length(self._data, self._at)
        if found is None:
            raise MalformedError("a packet that ends too early")
        size, self._at = found
        return size


def _encode_number(value: int, size: int) -> bytes:
    if not 0 <= value < 1 << 8 * size:
        raise ValueError("a property beyond its bytes")
    return value.to_bytes(size)


def _places(rows: Iterable[tuple[PacketKind | None, str]]) -> dict[int, tuple[PacketKind, ...]]:
    """The packets that each property belongs to; `None` stands for all that have properties."""
    places: dict[int, tuple[PacketKind, ...]] = {}
    for kind, numbers in rows:
        for number in bytes.fromhex(numbers):
            places[number] = (*places.get(number, ()), *(PacketKind if kind is None else (kind,)))
    return places


_SHORT: Final = struct.Struct(">H")
NUMBER_MAX: Final = 0xFFFF
LENGTH_BYTES: Final = 4
LENGTH_MAX: Final = (1 << 28) - 1
_OF_USERS: Final = 0x26
_PLACES: Final = _places(
    [
        (PacketKind.CONNECT, "11 15 16 17 19 21 22 27"),
        (PacketKind.CONNACK, "11 12 13 15 16 1a 1c 1f 21 22 24 25 27 28 29 2a"),
        (PacketKind.PUBLISH, "01 02 03 08 09"),
        (PacketKind.PUBACK, "1f"),
        (PacketKind.SUBACK, "1f"),
        (PacketKind.UNSUBACK, "1f"),
        (PacketKind.DISCONNECT, "11 1c 1f"),
        (None, "26"),
    ]
)
"""Topic aliases and subscription identifiers are missing: a client that never offers the one nor uses the other may
never be sent any.
"""
_TEXTS: Final = (0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F)
_BLOBS: Final = (0x09, 0x16)
_FLAGS: Final = (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
_POSITIVE: Final = (0x21, 0x27)
_SIZES: Final = {**dict.fromkeys(_FLAGS, 1), 0x13: 2, 0x21: 2, 0x22: 2, 0x02: 4, 0x11: 4, 0x27: 4}
_KEPT: Final = tuple(map(int, Property))
TEXT_MAX: Final = 0xFFFF
