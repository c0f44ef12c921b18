"""MQTT 3.1.1 and 5, as far as a client of ours needs them: packets to bytes and back, in both directions, without I/O.

A client connects (`ConnectPacket`), asks for topics (`SubscribePacket`), publishes what must arrive at least once
(`PublishPacket` with a number, quality of service 1) and acknowledges what arrives so (`PubackPacket`). The rest of
MQTT is missing: no will, no exactly-once, no topic aliases, no further authentication. Packets that would need them are
rejected like any other malformed packet, since the client asked for none of them.
"""

from veilcast.wire.mqtt.codec import PacketReader, decode, encode, number_of
from veilcast.wire.mqtt.fields import NUMBER_MAX, filter_matches
from veilcast.wire.mqtt.packets import (
    REFUSED,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
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

__all__ = [
    "NUMBER_MAX",
    "REFUSED",
    "ConnackPacket",
    "ConnectPacket",
    "DisconnectPacket",
    "Packet",
    "PingreqPacket",
    "PingrespPacket",
    "PubackPacket",
    "PublishPacket",
    "PacketReader",
    "SubackPacket",
    "SubscribePacket",
    "UnsubackPacket",
    "UnsubscribePacket",
    "Version",
    "decode",
    "encode",
    "filter_matches",
    "number_of",
]
