from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mqtt_strategies import packets
from veilcast.errors import ExcessError, MalformedError
from veilcast.wire.mqtt import Packet, PacketReader, PublishPacket, Version, encode

LIMIT = 1 << 16


@settings(max_examples=200)
@given(
    st.lists(packets(Version.MQTT_5), min_size=1, max_size=6),
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_however_a_stream_is_cut_the_same_packets_come_out(sent: list[Packet], cuts: list[int]) -> None:
    stream = b"".join(encode(packet, Version.MQTT_5) for packet in sent)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    reader = PacketReader(LIMIT)
    got = [packet for start, end in pairwise(places) for packet in reader.feed(stream[start:end])]
    assert got == [encode(packet, Version.MQTT_5) for packet in sent]


def test_a_stream_may_come_byte_by_byte() -> None:
    sent = [encode(PublishPacket("a", bytes(size), 1), Version.MQTT_3_1_1) for size in (0, 1, 120, 121, 122, 123, 300)]
    reader = PacketReader(LIMIT)
    assert [packet for byte in b"".join(sent) for packet in reader.feed(bytes((byte,)))] == sent


@pytest.mark.parametrize("size", [20, 200, 20_000])
def test_a_packet_of_the_greatest_size_passes_and_one_byte_more_is_refused_before_it_has_come(size: int) -> None:
    longest = encode(PublishPacket("a", bytes(size), 1), Version.MQTT_5)
    assert list(PacketReader(len(longest)).feed(longest)) == [longest]
    with pytest.raises(ExcessError):
        list(PacketReader(len(longest) - 1).feed(longest[:4]))


def test_a_length_that_never_ends_is_refused_at_its_fourth_byte() -> None:
    reader = PacketReader(LIMIT)
    assert list(reader.feed(b"\x30\xff\xff\xff")) == []
    with pytest.raises(MalformedError):
        list(reader.feed(b"\xff"))


def test_a_reader_keeps_no_more_than_one_packet_of_the_greatest_size() -> None:
    packet = encode(PublishPacket("a", bytes(1000), 1), Version.MQTT_5)
    reader = PacketReader(len(packet))
    for _ in range(50):
        list(reader.feed(packet[:-1]))
        assert len(reader._buffer) < len(packet)
        assert list(reader.feed(packet[-1:])) == [packet]
        assert not reader._buffer
