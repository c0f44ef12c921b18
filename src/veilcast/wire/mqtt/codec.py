"""MQTT packets to bytes and back. Hostile bytes raise `MalformedError` and nothing else.

Properties of version 5 that no packet of ours holds are checked and dropped. So several byte strings stand for one
packet, and comparing bytes does not compare packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from veilcast.errors import ExcessError, LocalError, MalformedError
from veilcast.wire.mqtt.fields import (
    NUMBER_MAX,
    FieldReader,
    PacketKind,
    Property,
    encode_length,
    encode_prefixed,
    encode_properties,
    encode_short,
    encode_text,
    read_length,
)
from veilcast.wire.mqtt.packets import (
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
    check_packet,
)


def encode(packet: Packet, version: Version) -> bytes:
    """The bytes of a legal packet. Raises `LocalError` for any other. A `ConnectPacket` has its own version."""
    version = packet.version if isinstance(packet, ConnectPacket) else version
    try:
        check_packet(packet, version)
        kind, flags, body = _write_packet(packet, version)
        return bytes((kind << 4 | flags,)) + encode_length(len(body)) + body
    except ValueError as error:
        raise LocalError(f"{type(packet).__name__} cannot be sent: {error}") from error


def decode(data: bytes, version: Version) -> Packet:
    """Decode one whole packet of a connection of this version. A `ConnectPacket` has its own version."""
    found = read_length(data, 1)
    if found is None:
        raise MalformedError("a packet without a length")
    size, start = found
    if start + size != len(data):
        raise MalformedError("a packet that is not as long as it says")
    kind, flags = data[0] >> 4, data[0] & 0x0F
    read = _READERS.get(kind)
    if read is None:
        raise MalformedError("a packet that nobody was asked for")
    if kind != PacketKind.PUBLISH and flags != _FLAGS.get(kind, 0):
        raise MalformedError("flags that its packet cannot have")
    fields = FieldReader(data, start)
    packet = read(fields, flags, version)
    fields.check_end()
    try:
        check_packet(packet, packet.version if isinstance(packet, ConnectPacket) else version)
    except ValueError as error:
        raise MalformedError(str(error)) from error
    return packet


def number_of(data: bytes) -> int | None:
    """By which a publication is acknowledged that is malformed for us beyond that; 0 if it asks for none, None if this
    is no such thing. A lax broker passes on what a stranger sent, and again until it is acknowledged."""
    try:
        found = read_length(data, 1)
        if found is None or data[0] >> 4 != PacketKind.PUBLISH or found[0] + found[1] != len(data):
            return None
        fields, quality = FieldReader(data, found[1]), data[0] >> 1 & 3
        fields.prefixed()
        number = fields.short() if quality else 0
    except MalformedError:
        return None
    return number if quality == bool(number) else None


class PacketReader:
    """Cuts a stream of MQTT into packets, each with its header. A frame of a machine that speaks MQTT is one packet.

    The packets do not depend on how the stream was cut in transit. An incomplete packet is kept; one longer than the
    limit is rejected as soon as its length is known.
    """

    __slots__ = ("_buffer", "_packet_max")

    def __init__(self, packet_max: int) -> None:
        """`packet_max` is the longest whole packet, in bytes, as in version 5."""
        self._packet_max = packet_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The packets that end in this chunk.

        Raises `ExcessError` for a packet that will be too long, and `MalformedError` for a broken length.
        """
        buffer = self._buffer
        buffer += chunk
        start, size = 0, len(buffer)
        with memoryview(buffer) as view:
            while found := read_length(view, start + 1):
                length, body = found
                end = body + length
                if end - start > self._packet_max:
                    raise ExcessError("a packet is too long")
                if end > size:
                    break
                yield bytes(view[start:end])
                start = end
        del buffer[:start]


def _write_packet(packet: Packet, version: Version) -> tuple[PacketKind, int, bytes]:
    """The kind of a packet, the flags of its first byte, and its body."""
    none = _NO_PROPERTIES[version]
    match packet:
        case PublishPacket(topic, payload, number, again, retained):
            flags = again << 3 | (number > 0) << 1 | retained
            return (
                PacketKind.PUBLISH,
                flags,
                encode_text(topic) + (encode_short(number) if number else b"") + none + payload,
            )
        case PubackPacket(number, code):
            return PacketKind.PUBACK, 0, encode_short(number) + (bytes((code,)) if code else b"")
        case SubscribePacket(number, filters):
            asked = [encode_text(each) + _OPTIONS[version] for each in filters]
            return PacketKind.SUBSCRIBE, _FLAGS[PacketKind.SUBSCRIBE], encode_short(number) + none + b"".join(asked)
        case UnsubscribePacket(number, filters):
            return (
                PacketKind.UNSUBSCRIBE,
                _FLAGS[PacketKind.UNSUBSCRIBE],
                encode_short(number) + none + b"".join(map(encode_text, filters)),
            )
        case SubackPacket(number, codes):
            return PacketKind.SUBACK, 0, encode_short(number) + none + bytes(codes)
        case UnsubackPacket(number, codes):
            return PacketKind.UNSUBACK, 0, encode_short(number) + none + bytes(codes)
        case PingreqPacket():
            return PacketKind.PINGREQ, 0, b""
        case PingrespPacket():
            return PacketKind.PINGRESP, 0, b""
        case DisconnectPacket(code, expiry_s):
            said = (
                b"" if packet == DisconnectPacket() else bytes((code,)) + encode_properties({Property.EXPIRY: expiry_s})
            )
            return PacketKind.DISCONNECT, 0, said
        case ConnectPacket():
            return PacketKind.CONNECT, 0, _connect(packet)
        case ConnackPacket():
            return PacketKind.CONNACK, 0, _connack(packet, version)
    raise ValueError("no packet of MQTT")


def _connect(packet: ConnectPacket) -> bytes:
    flags = packet.clean * _CLEAN | (packet.password is not None) * _PASSWORD | (packet.user is not None) * _USER
    said = _PROTOCOL + bytes((packet.version, flags)) + encode_short(packet.keep_alive_s)
    if packet.version is Version.MQTT_5:
        said += encode_properties(
            {
                Property.EXPIRY: _none_if_default(packet.expiry_s, 0),
                Property.RECEIVE_MAX: _none_if_default(packet.receive_max, NUMBER_MAX),
                Property.PACKET_MAX: packet.packet_max,
            }
        )
    said += encode_text(packet.client)
    if packet.user is not None:
        said += encode_text(packet.user)
    if packet.password is not None:
        said += encode_prefixed(packet.password)
    return said


def _connack(packet: ConnackPacket, version: Version) -> bytes:
    said = bytes((packet.present, packet.code))
    if version is Version.MQTT_5:
        said += encode_properties(
            {
                Property.EXPIRY: packet.expiry_s,
                Property.KEEP_ALIVE: packet.keep_alive_s,
                Property.RECEIVE_MAX: _none_if_default(packet.receive_max, NUMBER_MAX),
                Property.QOS_MAX: _none_if_default(packet.qos_max, 2),
                Property.PACKET_MAX: packet.packet_max,
                Property.WILDCARDS: _none_if_default(packet.wildcards, True),
            }
        )
    return said


def _none_if_default(value: int, default: int) -> int | None:
    """The value, or None if it is the default, which is left out."""
    return None if value == default else value


def _read_connect(fields: FieldReader, flags: int, version: Version) -> Packet:
    if fields.take(len(_PROTOCOL)) != _PROTOCOL:
        raise MalformedError("another protocol")
    number, bits, keep_alive_s = fields.byte(), fields.byte(), fields.short()
    if number not in _OPTIONS:
        raise MalformedError("a version that is not spoken here")
    if bits & ~(_CLEAN | _USER | _PASSWORD):
        raise MalformedError("a will, or flags that mean nothing")
    version = Version(number)
    said = _properties(fields, PacketKind.CONNECT, version)
    return ConnectPacket(
        client=fields.text(),
        version=version,
        clean=bool(bits & _CLEAN),
        keep_alive_s=keep_alive_s,
        user=fields.text() if bits & _USER else None,
        password=fields.prefixed() if bits & _PASSWORD else None,
        expiry_s=said.get(Property.EXPIRY, 0),
        receive_max=said.get(Property.RECEIVE_MAX, NUMBER_MAX),
        packet_max=said.get(Property.PACKET_MAX),
    )


def _read_connack(fields: FieldReader, flags: int, version: Version) -> Packet:
    present, code = fields.byte(), fields.byte()
    if present > 1:
        raise MalformedError("flags that its packet cannot have")
    said = _properties(fields, PacketKind.CONNACK, version)
    return ConnackPacket(
        present=bool(present),
        code=code,
        expiry_s=said.get(Property.EXPIRY),
        keep_alive_s=said.get(Property.KEEP_ALIVE),
        receive_max=said.get(Property.RECEIVE_MAX, NUMBER_MAX),
        packet_max=said.get(Property.PACKET_MAX),
        qos_max=said.get(Property.QOS_MAX, 2),
        wildcards=bool(said.get(Property.WILDCARDS, True)),
    )


def _read_publish(fields: FieldReader, flags: int, version: Version) -> Packet:
    quality = flags >> 1 & 3
    if quality > 1:
        raise MalformedError("a publication to be had exactly once")
    topic, number = fields.text(), fields.short() if quality else 0
    if quality and not number:
        raise MalformedError("a publication with a number it cannot have")
    _properties(fields, PacketKind.PUBLISH, version)
    return PublishPacket(topic, fields.rest(), number, bool(flags & 8), bool(flags & 1))


def _read_puback(fields: FieldReader, flags: int, version: Version) -> Packet:
    number = fields.short()
    code = fields.byte() if version is Version.MQTT_5 and fields.has_more else 0
    if fields.has_more:
        _properties(fields, PacketKind.PUBACK, version)
    return PubackPacket(number, code)


def _read_subscribe(fields: FieldReader, flags: int, version: Version) -> Packet:
    number, filters = fields.short(), list[str]()
    _properties(fields, PacketKind.SUBSCRIBE, version)
    while fields.has_more:
        filters.append(fields.text())
        if fields.take(1) != _OPTIONS[version]:
            raise MalformedError("a subscription in a way that nobody here has")
    return SubscribePacket(number, tuple(filters))


def _read_unsubscribe(fields: FieldReader, flags: int, version: Version) -> Packet:
    number, filters = fields.short(), list[str]()
    _properties(fields, PacketKind.UNSUBSCRIBE, version)
    while fields.has_more:
        filters.append(fields.text())
    return UnsubscribePacket(number, tuple(filters))


def _read_suback(fields: FieldReader, flags: int, version: Version) -> Packet:
    number = fields.short()
    _properties(fields, PacketKind.SUBACK, version)
    return SubackPacket(number, tuple(fields.rest()))


def _read_unsuback(fields: FieldReader, flags: int, version: Version) -> Packet:
    number = fields.short()
    _properties(fields, PacketKind.UNSUBACK, version)
    return UnsubackPacket(number, tuple(fields.rest()))


def _read_pingreq(fields: FieldReader, flags: int, version: Version) -> Packet:
    return PingreqPacket()


def _read_pingresp(fields: FieldReader, flags: int, version: Version) -> Packet:
    return PingrespPacket()


def _read_disconnect(fields: FieldReader, flags: int, version: Version) -> Packet:
    code = fields.byte() if version is Version.MQTT_5 and fields.has_more else 0
    said = _properties(fields, PacketKind.DISCONNECT, version) if fields.has_more else {}
    return DisconnectPacket(code, said.get(Property.EXPIRY))


def _properties(fields: FieldReader, kind: PacketKind, version: Version) -> dict[Property, int]:
    return fields.properties(kind) if version is Version.MQTT_5 else {}


_Read: TypeAlias = Callable[[FieldReader, int, Version], Packet]
_READERS: Final[dict[int, _Read]] = {
    PacketKind.CONNECT: _read_connect,
    PacketKind.CONNACK: _read_connack,
    PacketKind.PUBLISH: _read_publish,
    PacketKind.PUBACK: _read_puback,
    PacketKind.SUBSCRIBE: _read_subscribe,
    PacketKind.SUBACK: _read_suback,
    PacketKind.UNSUBSCRIBE: _read_unsubscribe,
    PacketKind.UNSUBACK: _read_unsuback,
    PacketKind.PINGREQ: _read_pingreq,
    PacketKind.PINGRESP: _read_pingresp,
    PacketKind.DISCONNECT: _read_disconnect,
}
_FLAGS: Final[dict[int, int]] = {PacketKind.SUBSCRIBE: 2, PacketKind.UNSUBSCRIBE: 2}
_OPTIONS: Final[dict[int, bytes]] = {Version.MQTT_3_1_1: b"\x01", Version.MQTT_5: b"\x21"}
"""How we subscribe: at least once, and in version 5 without what was retained before."""
_NO_PROPERTIES: Final = {Version.MQTT_3_1_1: b"", Version.MQTT_5: b"\0"}
_PROTOCOL: Final = encode_text("MQTT")
_CLEAN: Final = 0x02
_PASSWORD: Final = 0x40
_USER: Final = 0x80
