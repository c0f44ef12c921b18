"""Handshake packets, valid and malformed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.link_pair import identity, network
from veilcast.crypto.secret import Secret
from veilcast.crypto.uniform_seal import UniformSealer
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.link.envelope import NO_COOKIE, HandshakePacket, HandshakePacketKind, PacketSealer
from veilcast.wire.geometry import CELL, COOKIE, HANDSHAKE_HEADER, HANDSHAKE_ID, HANDSHAKE_PAYLOAD_MAX, LINK_HEADER

KEY = Secret(bytes(range(32)))
ENVELOPES = PacketSealer(KEY, random.Random(1).randbytes)
LETTER = HandshakePacket(HandshakePacketKind.HELLO, b"thread 8", b"content")


@given(
    st.builds(
        HandshakePacket,
        st.sampled_from(HandshakePacketKind),
        st.binary(min_size=HANDSHAKE_ID, max_size=HANDSHAKE_ID),
        st.binary(max_size=HANDSHAKE_PAYLOAD_MAX),
        st.binary(min_size=COOKIE, max_size=COOKIE),
    )
)
def test_a_packet_opens_as_it_was_sealed_and_fills_a_cell(packet: HandshakePacket) -> None:
    sealed = ENVELOPES.seal(packet)
    assert len(sealed) == CELL
    assert ENVELOPES.open(sealed) == packet


def test_sealing_the_same_packet_again_gives_another_cell() -> None:
    assert len({ENVELOPES.seal(LETTER) for _ in range(100)}) == 100


def test_every_single_changed_bit_of_an_envelope_is_refused() -> None:
    sealed = ENVELOPES.seal(LETTER)
    for bit in range(CELL * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ForgedError):
            ENVELOPES.open(bytes(changed))


def test_an_envelope_of_another_size_is_refused() -> None:
    sealed = ENVELOPES.seal(LETTER)
    for datagram in (b"", sealed[:12], sealed[:28], sealed[:-1], sealed + b"\0", sealed * 2):
        with pytest.raises(MalformedError):
            ENVELOPES.open(datagram)


def test_an_envelope_of_another_network_does_not_open() -> None:
    ours, others = (identity(network(seed).alice) for seed in (1, 2))
    assert ours.envelope == identity(network(1).carol).envelope
    with pytest.raises(ForgedError):
        PacketSealer(others.envelope, others.entropy).open(PacketSealer(ours.envelope, ours.entropy).seal(LETTER))


@pytest.mark.parametrize(
    "plain",
    [
        bytes(HANDSHAKE_HEADER + HANDSHAKE_PAYLOAD_MAX),
        bytes([6]) + bytes(HANDSHAKE_HEADER - 1 + HANDSHAKE_PAYLOAD_MAX),
        bytes([1])
        + bytes(HANDSHAKE_HEADER - 3)
        + (HANDSHAKE_PAYLOAD_MAX + 1).to_bytes(2, "big")
        + bytes(HANDSHAKE_PAYLOAD_MAX),
        bytes([1]) + bytes(HANDSHAKE_HEADER - 1) + bytes(HANDSHAKE_PAYLOAD_MAX - 1) + b"x",
    ],
    ids=["kind 0", "kind 6", "too long", "padding that is none"],
)
def test_malformed_packets_of_members_are_refused(plain: bytes) -> None:
    sealed = ENVELOPES._veil.seal(plain, entropy=random.Random(2).randbytes)
    with pytest.raises(MalformedError, match="not a handshake packet"):
        ENVELOPES.open(ENVELOPES._stamp_of(sealed) + sealed)


def test_a_valid_stamp_on_a_forged_packet_does_not_open_it() -> None:
    forged = bytes(CELL - LINK_HEADER)
    with pytest.raises(ForgedError, match="does not open"):
        ENVELOPES.open(ENVELOPES._stamp_of(forged) + forged)


def test_a_forged_datagram_is_refused_by_its_stamp_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UniformSealer, "open", None)
    with pytest.raises(ForgedError, match="of this network"):
        ENVELOPES.open(random.Random(3).randbytes(CELL))


def test_an_oversized_packet_cannot_be_sealed() -> None:
    for thread, content, cookie in (
        (b"short", b"", NO_COOKIE),
        (bytes(HANDSHAKE_ID), bytes(HANDSHAKE_PAYLOAD_MAX + 1), NO_COOKIE),
        (bytes(HANDSHAKE_ID), b"", b"short"),
    ):
        with pytest.raises(LocalError):
            HandshakePacket(HandshakePacketKind.HELLO, thread, content, cookie)
