"""MQTT 3.1.1 and 5, as far as a client of ours goes: packets to bytes and back, in both directions, without I/O.

A client says that it is there (`Connect`), asks for topics (`Subscribe`), publishes what must arrive at least once
(`Publish` with a number, quality of service 1) and acknowledges what is brought to it so (`Puback`). Of the rest of
MQTT there is nothing here: no will, no exactly-once, no aliases of topics, no further authentication. What would need
them is refused like any other malformed packet, since nobody was asked for it.
"""

from veilcast.wire.mqtt.codec import decode, encode, number_of
from veilcast.wire.mqtt.fields import NUMBER_MAX
from veilcast.wire.mqtt.names import matches
from veilcast.wire.mqtt.packets import (
    REFUSED,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
)
from veilcast.wire.mqtt.reader import Reader

__all__ = [
    "NUMBER_MAX",
    "REFUSED",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Publish",
    "Reader",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Version",
    "decode",
    "encode",
    "matches",
    "number_of",
]
