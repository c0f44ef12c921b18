"""The MQTT packets that a client of ours sends and gets, frozen, and the rules for legal ones.

A packet holds the fields that a client acts on. In version 5 these are few: how long a session is kept, and what the
other side cannot take. Version 3.1.1 has none of them.

`check_packet` has all rules. A packet that breaks one is our mistake if we make it, and a stranger's if we read it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from veilcast.wire.mqtt.fields import NUMBER_MAX, check_filter, check_topic


class Version(IntEnum):
    MQTT_3_1_1 = 4
    MQTT_5 = 5


class Packet(msgspec.Struct, frozen=True):
    """The base of every packet."""


class ConnectPacket(Packet, frozen=True):
    """A client begins. `clean` discards an earlier session of its name.

    Without `clean`, version 3.1.1 keeps the session as long as the broker likes, and version 5 keeps it for `expiry_s`
    after the connection's end. In version 5 `receive_max` (unacknowledged packets at a time) and `packet_max` say what
    the client can take.
    """

    client: str
    version: Version
    clean: bool = False
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    expiry_s: int = 0
    receive_max: int = NUMBER_MAX
    packet_max: int | None = None

    def __repr__(self) -> str:
        return f"Connect(client={self.client!r}, version={self.version!r}, clean={self.clean})"


class ConnackPacket(Packet, frozen=True):
    """The broker's answer; any code but 0 is a refusal. `present`: it has the session of an earlier connection.

    The other fields exist only in version 5: what the broker can take, and where it deviates from what it was asked.
    """

    present: bool = False
    code: int = 0
    expiry_s: int | None = None
    keep_alive_s: int | None = None
    receive_max: int = NUMBER_MAX
    packet_max: int | None = None
    qos_max: int = 2
    wildcards: bool = True


class PublishPacket(Packet, frozen=True):
    """A packet with number 0 arrives at most once and is not acknowledged. `again`: it may have come before."""

    topic: str
    payload: bytes
    number: int = 0
    again: bool = False
    retained: bool = False


class PubackPacket(Packet, frozen=True):
    number: int
    code: int = 0


class SubscribePacket(Packet, frozen=True):
    """Subscribe to all of these at least once, and in version 5 without retained messages."""

    number: int
    filters: tuple[str, ...]


class SubackPacket(Packet, frozen=True):
    """For each filter the granted quality of service, or a refusal, from `REFUSED` on."""

    number: int
    codes: tuple[int, ...]


class UnsubscribePacket(Packet, frozen=True):
    number: int
    filters: tuple[str, ...]


class UnsubackPacket(Packet, frozen=True):
    """With one code for each filter in version 5, and none in 3.1.1."""

    number: int
    codes: tuple[int, ...] = ()


class PingreqPacket(Packet, frozen=True):
    pass


class PingrespPacket(Packet, frozen=True):
    pass


class DisconnectPacket(Packet, frozen=True):
    """The end of the connection.

    In version 5 the broker may send it too, with its reason, and the client may change the lifetime of its session by
    `expiry_s`.
    """

    code: int = 0
    expiry_s: int | None = None


def check_packet(packet: Packet, version: Version) -> None:
    """Raise `ValueError` if this version of MQTT has no such packet."""
    five = version is Version.MQTT_5
    match packet:
        case PublishPacket(topic, _, number, again, _):
            check_topic(topic)
            if not 0 <= number <= NUMBER_MAX or (again and not number):
                raise ValueError("a publication with a number it cannot have")
        case PubackPacket(number, code):
            _check_number(number)
            _check_code(code, (0, 0x10) if five else (0,), refusals=five)
        case SubscribePacket(number, filters) | UnsubscribePacket(number, filters):
            _check_number(number)
            if not filters:
                raise ValueError("no filter at all")
            for each in filters:
                check_filter(each)
        case SubackPacket(number, codes):
            _check_number(number)
            if not codes or (not five and any(code > REFUSED for code in codes)):
                raise ValueError("no code that its version has")
            for code in codes:
                _check_code(code, (0, 1, 2), refusals=True)
        case UnsubackPacket(number, codes):
            _check_number(number)
            if five != bool(codes):
                raise ValueError("codes for filters, in version 5 and only there")
            for code in codes:
                _check_code(code, (0, 0x11), refusals=True)
        case ConnectPacket():
            _check_connect(packet, five=five)
        case ConnackPacket(present, code):
            _check_code(code, (0,) if five else tuple(range(6)), refusals=five)
            if present and code:
                raise ValueError("a session with a refusal")
            if not five and packet != ConnackPacket(present, code):
                raise ValueError("more than version 3.1.1 says")
            if packet.qos_max > 2:
                raise ValueError("an unknown quality of service")
            _check_most(packet.receive_max, packet.packet_max)
        case DisconnectPacket(code):
            _check_code(code, (0, 4) if five else (0,), refusals=five)
            if not five and packet.expiry_s is not None:
                raise ValueError("more than version 3.1.1 says")


def _check_connect(packet: ConnectPacket, *, five: bool) -> None:
    if not packet.client and not packet.clean:
        raise ValueError("a session without a name")
    if packet.password is not None and packet.user is None and not five:
        raise ValueError("a password without a user")
    if not five and (packet.expiry_s, packet.receive_max, packet.packet_max) != (0, NUMBER_MAX, None):
        raise ValueError("more than version 3.1.1 says")
    _check_most(packet.receive_max, packet.packet_max)


def _check_most(receive_max: int, packet_max: int | None) -> None:
    if not receive_max or packet_max == 0:
        raise ValueError("room for nothing")


def _check_number(number: int) -> None:
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError("a number beyond 1 to 65,535")


def _check_code(code: int, good: tuple[int, ...], *, refusals: bool) -> None:
    if code not in good and not (refusals and REFUSED <= code <= 0xFF):
        raise ValueError("an unknown code")


REFUSED: Final = 0x80
"""This code and all above it are refusals."""
