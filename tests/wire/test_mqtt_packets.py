from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mqtt_strategies import VERSION_AND_PACKET, VERSIONS
from veilcast.errors import LocalError, MalformedError
from veilcast.wire.mqtt import (
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
    codec,
    decode,
    encode,
)

THREE, FIVE = Version

BY_HAND: list[tuple[Version, Packet, str]] = [
    # Sections 3.1 to 3.14 of the text of 3.1.1, byte for byte: what each table of the section says is written down.
    (THREE, ConnectPacket("me", THREE, True, 10), "10 0e 0004 4d515454 04 02 000a 0002 6d65"),
    (
        THREE,
        ConnectPacket("me", THREE, user="u", password=b"pw"),
        "10 15 0004 4d515454 04 c0 0000 0002 6d65 0001 75 0002 7077",
    ),
    (THREE, ConnackPacket(), "20 02 00 00"),
    (THREE, ConnackPacket(present=True), "20 02 01 00"),
    (THREE, ConnackPacket(code=5), "20 02 00 05"),
    (THREE, PublishPacket("a/b", b"", 10), "32 07 0003 612f62 000a"),
    (THREE, PublishPacket("a/b", b"hi", 10, again=True), "3a 09 0003 612f62 000a 6869"),
    (THREE, PublishPacket("a/b", b"hi", retained=True), "31 07 0003 612f62 6869"),
    (THREE, PubackPacket(0x1234), "40 02 1234"),
    (THREE, SubscribePacket(10, ("a/b", "c/#")), "82 0e 000a 0003 612f62 01 0003 632f23 01"),
    (THREE, SubackPacket(10, (0, 2, 0x80)), "90 05 000a 00 02 80"),
    (THREE, UnsubscribePacket(10, ("a/b", "c/d")), "a2 0c 000a 0003 612f62 0003 632f64"),
    (THREE, UnsubackPacket(10), "b0 02 000a"),
    (THREE, PingreqPacket(), "c0 00"),
    (THREE, PingrespPacket(), "d0 00"),
    (THREE, DisconnectPacket(), "e0 00"),
    # The same in version 5.
    (FIVE, ConnectPacket("me", FIVE, True, 10, expiry_s=10), "10 14 0004 4d515454 05 02 000a 05 11 0000000a 0002 6d65"),
    (
        FIVE,
        ConnectPacket("me", FIVE, receive_max=20, packet_max=4096),
        "10 17 0004 4d515454 05 00 0000 08 21 0014 27 00001000 0002 6d65",
    ),
    (FIVE, ConnackPacket(present=True), "20 03 01 00 00"),
    (FIVE, ConnackPacket(keep_alive_s=60, qos_max=1, wildcards=False), "20 0a 00 00 07 13 003c 24 01 28 00"),
    (FIVE, ConnackPacket(code=0x87), "20 03 00 87 00"),
    (FIVE, PublishPacket("a/b", b"hi", 10), "32 0a 0003 612f62 000a 00 6869"),
    (FIVE, PubackPacket(10), "40 02 000a"),
    (FIVE, PubackPacket(10, 0x97), "40 03 000a 97"),
    (FIVE, SubscribePacket(10, ("a/b",)), "82 09 000a 00 0003 612f62 21"),
    (FIVE, SubackPacket(10, (1, 0x87)), "90 05 000a 00 01 87"),
    (FIVE, UnsubackPacket(10, (0x11,)), "b0 04 000a 00 11"),
    (FIVE, DisconnectPacket(4), "e0 02 04 00"),
    (FIVE, DisconnectPacket(0, 0), "e0 07 00 05 11 00000000"),
]

SAID_OTHERWISE: list[tuple[Version, Packet, str]] = [
    # Properties of users, twice; a reason; how a payload is to be read; what all brokers say and we do not need.
    (FIVE, PubackPacket(10), "40 14 000a 00 10 26 0001 61 0001 62 26 0001 61 0000 1f 0000"),
    (FIVE, PubackPacket(10), "40 03 000a 00"),
    (FIVE, PubackPacket(10), "40 04 000a 00 00"),
    (FIVE, PublishPacket("a", b"x", 1), "32 09 0001 61 0001 02 01 01 78"),
    (FIVE, ConnackPacket(), "20 0c 00 00 09 22 000a 25 01 29 00 2a 01"),
    (FIVE, DisconnectPacket(), "e0 01 00"),
    (FIVE, DisconnectPacket(), "e0 02 00 00"),
]

MALFORMED: list[tuple[Version, str, str]] = [
    (THREE, "", "length"),
    (THREE, "30", "length"),
    (THREE, "c0 01", "as long"),
    (THREE, "c0 00 00", "as long"),
    (THREE, "c0 80 00", "more bytes"),
    (THREE, "c0 ff ff ff ff 7f", "four bytes"),
    (THREE, "00 00", "asked for"),
    (THREE, "50 02 000a", "asked for"),
    (THREE, "f0 00", "asked for"),
    (THREE, "c1 00", "flags"),
    (THREE, "80 08 000a 0003 612f62 01", "flags"),
    (THREE, "a0 07 000a 0003 612f62", "flags"),
    (THREE, "10 0e 0004 4d515455 04 02 000a 0002 6d65", "protocol"),
    (THREE, "10 0e 0004 4d515454 03 02 000a 0002 6d65", "version"),
    (THREE, "10 0e 0004 4d515454 04 03 000a 0002 6d65", "flags"),
    (THREE, "10 0e 0004 4d515454 04 06 000a 0002 6d65", "will"),
    (THREE, "10 0c 0004 4d515454 04 00 000a 0000", "without a name"),
    (THREE, "10 11 0004 4d515454 04 42 000a 0002 6d65 0001 61", "without a user"),
    (THREE, "10 0f 0004 4d515454 04 02 000a 0002 6d65 00", "after its end"),
    (THREE, "20 02 02 00", "flags"),
    (THREE, "20 02 00 06", "code"),
    (THREE, "20 02 01 01", "refusal"),
    (THREE, "20 03 00 00 00", "after its end"),
    (THREE, "34 07 0003 612f62 000a", "exactly once"),
    (THREE, "36 07 0003 612f62 000a", "exactly once"),
    (THREE, "38 05 0003 612f62", "number"),
    (THREE, "32 07 0003 612f62 0000", "number"),
    (THREE, "32 06 0003 612f62 00", "too early"),
    (THREE, "32 04 0000 000a", "empty"),
    (THREE, "32 07 0003 612f23 000a", "wildcard"),
    (THREE, "32 07 0003 612f2b 000a", "wildcard"),
    (THREE, "32 07 0003 610062 000a", "U[+]0000"),
    (THREE, "32 07 0003 61c162 000a", "UTF-8"),
    (THREE, "32 07 0003 eda080 000a", "UTF-8"),
    (THREE, "32 07 0009 612f62 000a", "too early"),
    (THREE, "40 02 0000", "number"),
    (THREE, "40 03 000a 00", "after its end"),
    (THREE, "82 02 000a", "no filter"),
    (THREE, "82 08 0000 0003 612f62 01", "number"),
    (THREE, "82 08 000a 0003 612f62 02", "in a way"),
    (THREE, "82 08 000a 0003 622f62 41", "in a way"),
    (THREE, "82 07 000a 0003 612f62", "too early"),
    (THREE, "82 08 000a 0003 612362 01", "wrong place"),
    (THREE, "82 08 000a 0003 232f62 01", "wrong place"),
    (THREE, "82 08 000a 0003 61622b 01", "wrong place"),
    (THREE, "82 05 000a 0000 01", "empty"),
    (THREE, "90 02 000a", "no code"),
    (THREE, "90 03 000a 03", "code"),
    (THREE, "90 03 000a 87", "code"),
    (THREE, "a2 02 000a", "no filter"),
    (THREE, "b0 03 000a 00", "version 5"),
    (THREE, "e0 01 00", "after its end"),
    (FIVE, "b0 03 000a 00", "version 5"),
    (FIVE, "20 02 00 00", "too early"),
    (FIVE, "20 03 00 01 00", "code"),
    (FIVE, "20 06 00 00 03 21 0000", "value"),
    (FIVE, "20 08 00 00 05 27 00000000", "value"),
    (FIVE, "20 05 00 00 02 28 02", "value"),
    (FIVE, "20 07 00 00 04 28 01 28 01", "twice"),
    (FIVE, "20 05 00 00 02 01 00", "none such"),
    (FIVE, "20 05 00 00 02 7f 00", "none such"),
    (FIVE, "20 04 00 00 02 28", "too early"),
    (FIVE, "20 04 00 00 01 28", "too early"),
    (FIVE, "20 05 00 00 81 00 28", "more bytes"),
    (FIVE, "32 0b 0003 612f62 000a 03 23 0001", "none such"),
    (FIVE, "32 0a 0003 612f62 000a 02 0b 01", "none such"),
    (FIVE, "90 03 000a 00", "no code"),
    (FIVE, "40 03 000a 01", "code"),
    (FIVE, "e0 01 01", "code"),
]


def _id(value: object) -> str | None:
    return value.replace(" ", "") if isinstance(value, str) else None


@pytest.mark.parametrize(("version", "packet", "data"), BY_HAND, ids=_id)
def test_a_packet_has_the_bytes_that_the_text_of_mqtt_says(version: Version, packet: Packet, data: str) -> None:
    assert encode(packet, version) == bytes.fromhex(data)
    assert decode(bytes.fromhex(data), version) == packet


@pytest.mark.parametrize(("version", "packet", "data"), SAID_OTHERWISE, ids=_id)
def test_other_properties_of_brokers_are_checked_and_dropped(version: Version, packet: Packet, data: str) -> None:
    assert decode(bytes.fromhex(data), version) == packet


@pytest.mark.parametrize(("version", "data", "why"), MALFORMED, ids=_id)
def test_a_malformed_packet_is_refused_with_its_defect(version: Version, data: str, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        decode(bytes.fromhex(data), version)


@settings(max_examples=200)
@given(VERSION_AND_PACKET)
def test_every_packet_comes_back_equal(told: tuple[Version, Packet]) -> None:
    version, packet = told
    assert decode(encode(packet, version), version) == packet


@settings(max_examples=200)
@given(st.binary(max_size=80), VERSIONS)
def test_random_bytes_raise_one_error_or_are_a_packet_that_could_be_sent(data: bytes, version: Version) -> None:
    _refused_or_legal(data, version)


@settings(max_examples=200)
@given(VERSION_AND_PACKET, VERSIONS, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3))
def test_changed_bytes_raise_one_error_or_make_a_packet_that_could_be_sent(
    told: tuple[Version, Packet], version: Version, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(encode(told[1], told[0]))
    for place, value in changes:
        data[place % len(data)] = value
    _refused_or_legal(bytes(data), version)


@given(VERSION_AND_PACKET, st.integers(1, 10**6), st.binary(min_size=1, max_size=9))
def test_a_cut_or_lengthened_packet_is_refused(told: tuple[Version, Packet], cut: int, extra: bytes) -> None:
    version, packet = told
    data = encode(packet, version)
    for changed in (data[: -(cut % len(data)) or -1], data + extra):
        with pytest.raises(MalformedError):
            decode(changed, version)


ILLEGAL: list[tuple[Version, Packet]] = [
    (THREE, Packet()),
    (THREE, PublishPacket("", b"", 1)),
    (THREE, PublishPacket("a/+", b"", 1)),
    (THREE, PublishPacket("a\0", b"", 1)),
    (THREE, PublishPacket("\ud800", b"", 1)),
    (THREE, PublishPacket("a" * 65_536, b"", 1)),
    (THREE, PublishPacket("a", b"", 65_536)),
    (THREE, PublishPacket("a", b"", -1)),
    (THREE, PublishPacket("a", b"", again=True)),
    (THREE, PubackPacket(0)),
    (THREE, PubackPacket(1, 0x80)),
    (FIVE, PubackPacket(1, 0x11)),
    (FIVE, PubackPacket(1, 0x100)),
    (THREE, SubscribePacket(1, ())),
    (THREE, SubscribePacket(1, ("a#",))),
    (FIVE, UnsubscribePacket(1, ("a/#/b",))),
    (FIVE, UnsubackPacket(1)),
    (THREE, UnsubackPacket(1, (0,))),
    (THREE, SubackPacket(1, (0x81,))),
    (THREE, DisconnectPacket(4)),
    (THREE, DisconnectPacket(expiry_s=0)),
    (FIVE, DisconnectPacket(expiry_s=1 << 32)),
    (THREE, ConnackPacket(expiry_s=5)),
    (FIVE, ConnackPacket(present=True, code=0x80)),
    (FIVE, ConnackPacket(receive_max=0)),
    (FIVE, ConnackPacket(qos_max=3)),
    (THREE, ConnectPacket("", THREE)),
    (THREE, ConnectPacket("me", THREE, password=b"")),
    (THREE, ConnectPacket("me", THREE, expiry_s=1)),
    (THREE, ConnectPacket("me", THREE, keep_alive_s=65_536)),
    (FIVE, ConnectPacket("me", FIVE, packet_max=0)),
    (FIVE, ConnectPacket("me", FIVE, receive_max=65_536)),
    (FIVE, ConnectPacket("me", FIVE, password=bytes(65_536))),
]


@pytest.mark.parametrize(("version", "packet"), ILLEGAL, ids=lambda value: type(value).__name__)
def test_a_packet_that_no_other_side_would_take_is_never_sent(version: Version, packet: Packet) -> None:
    with pytest.raises(LocalError, match=type(packet).__name__):
        encode(packet, version)


def test_a_packet_longer_than_four_length_bytes_allow_is_never_sent() -> None:
    class Huge(bytes):
        def __radd__(self, other: Any) -> Any:
            return self

        def __len__(self) -> int:
            return 1 << 28

    with pytest.raises(LocalError, match="four bytes"):
        encode(PublishPacket("a", Huge(), 1), THREE)


def test_a_printed_packet_shows_neither_user_nor_password() -> None:
    packet = ConnectPacket("me", FIVE, user="somebody", password=b"open sesame")
    assert "somebody" not in repr(packet)
    assert "sesame" not in repr(packet)


def test_without_the_check_of_legal_packets_a_wildcard_topic_passes_and_the_property_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted bug: the decoder takes everything for legal."""
    data = bytes.fromhex("32 07 0003 612f23 000a")
    _refused_or_legal(data, THREE)
    with monkeypatch.context() as bug:
        bug.setattr(codec, "check_packet", lambda packet, version: None)
        packet = decode(data, THREE)
    with pytest.raises(LocalError):
        encode(packet, THREE)


def _refused_or_legal(data: bytes, version: Version) -> None:
    try:
        packet = decode(data, version)
    except MalformedError:
        return
    if isinstance(packet, ConnectPacket):
        version = packet.version
    assert decode(encode(packet, version), version) == packet
