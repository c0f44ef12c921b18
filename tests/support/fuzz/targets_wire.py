"""Targets: messages on the wire, padding, MQTT packets and streams."""

from __future__ import annotations

import itertools
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.strategies import SearchStrategy

from support.fuzz.fuzz_target import Format, Group, Prepared
from support.message_strategies import of_type
from support.mqtt_strategies import packets
from veilcast.errors import ExcessError, MalformedError
from veilcast.wire import decode, encode, mqtt, pad, unpad
from veilcast.wire.codec import TYPE_BYTES

T = TypeVar("T")
GROUP = Group()


def one(strategy: SearchStrategy[T], kind: type[object] = object) -> T:
    """The simplest value of this kind."""
    quiet = settings(database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), max_examples=1000)
    return find(strategy, lambda found: isinstance(found, kind), settings=quiet)


def messages() -> list[bytes]:
    """A message of every type, encoded."""
    return [encode(one(of_type(kind))) for kind in TYPE_BYTES.values()]


@GROUP.target("wire-codec", "messages of all modes, from strangers", "wire.codec:decode")
def wire_codec() -> Prepared:
    def check(data: bytes) -> object:
        message = decode(data)
        assert encode(message) == data, "two encodings of one message"
        return message

    types = [bytes((number,)) for number in TYPE_BYTES]
    return Prepared(check, (MalformedError,), messages(), Format.MSGPACK, prefixes=types[:4], skip=1)


@GROUP.target("wire-padding", "padded blocks, from members", "wire.padding:unpad")
def wire_padding() -> Prepared:
    def check(data: bytes) -> object:
        content = unpad(data)
        assert pad(content, len(data)) == data, "two paddings of one content"
        return content

    return Prepared(check, (MalformedError,), [pad(b"", 64), pad(b"ab", 64), pad(b"a" * 40, 64)])


@GROUP.target("mqtt-packets", "packets of a broker of MQTT, both versions", "wire.mqtt.codec:decode")
def mqtt_packets() -> Prepared:
    def check(data: bytes) -> object:
        found = []
        for version in mqtt.Version:
            try:
                packet = mqtt.decode(data, version)
            except MalformedError:
                continue
            said = packet.version if isinstance(packet, mqtt.ConnectPacket) else version
            assert mqtt.decode(mqtt.encode(packet, said), said) == packet, "a packet that does not come back"
            found.append(packet)
        return tuple(map(type, found))

    return Prepared(check, (), mqtt_examples())


def mqtt_examples() -> list[bytes]:
    kinds = mqtt.Packet.__subclasses__()
    return [mqtt.encode(one(packets(version), kind), version) for version in mqtt.Version for kind in kinds]


@GROUP.target("mqtt-stream", "a stream of a broker of MQTT, cut anywhere", "wire.mqtt.codec:PacketReader")
def mqtt_stream() -> Prepared:
    def check(data: bytes) -> object:
        """The first byte says where the stream is cut: the packets must not depend on it."""
        at, stream = data[0] if data else 0, data[1:]
        whole = _packets([stream])
        assert _packets([stream[:at], stream[at:]]) == whole, "a cut changes the packets"
        return len(whole[0]), whole[1]

    streams = mqtt_examples()
    examples = [bytes((7,)) + first + second for first, second in itertools.pairwise(streams)]
    return Prepared(check, (), examples, prefixes=(b"\x03",))


def _packets(chunks: list[bytes]) -> tuple[list[bytes], str]:
    """The packets of a stream, and the name of the error that ends it."""
    reader, found = mqtt.PacketReader(2048), []
    for chunk in chunks:
        try:
            for packet in reader.feed(chunk):
                found.append(packet)
        except (MalformedError, ExcessError) as error:
            return found, type(error).__name__
    return found, ""
