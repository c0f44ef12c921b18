"""Packets of a handshake between peers without a link, each sealed to the size of one cell.

A packet is sealed under a key that all members have. To an outsider it is 1,200 random bytes, like every cell: the
X25519 points of Noise, which differ from random bytes, do not show, nor does the length of a certificate. Opening a
packet costs one decryption and no operation on a curve, so forged packets get no further. Most do not get that far: in
front, where a cell has its header, stands a stamp (8 bytes), the network's mask for the bytes behind it. One block of a
cipher detects a wrong stamp.

Limit: a member that observes the wire can open the packets of others. It sees that two addresses meet, and their
ephemeral keys. Certificates are encrypted once more, inside.

Inside: kind (1) | thread (8) | cookie (16) | length (2) | content | zeros. The thread identifies the handshake, so that
answers can be matched. The cookie is zeros if the packet has none.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.crypto.uniform_seal import HeaderMask, UniformSealer
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.machine import Entropy
from veilcast.wire.geometry import (
    CELL,
    COOKIE,
    HANDSHAKE_HEADER,
    HANDSHAKE_ID,
    HANDSHAKE_PAYLOAD_MAX,
    LINK_HEADER,
    LINK_SAMPLE,
)

NO_COOKIE: Final = bytes(COOKIE)


class HandshakePacketKind(enum.IntEnum):
    """Append only: the numbers are on the wire."""

    HELLO = 1
    """First message to a peer whose key is unknown (XX)."""
    RETURN = 2
    """First message to a peer whose key is known (IK)."""
    COOKIE = 3
    """A cookie, to be returned with the first message."""
    ANSWER = 4
    FINISH = 5
    """Third message of XX."""


class HandshakePacket(msgspec.Struct, frozen=True):
    kind: HandshakePacketKind
    thread: bytes
    content: bytes = b""
    cookie: bytes = NO_COOKIE

    def __post_init__(self) -> None:
        if len(self.thread) != HANDSHAKE_ID or len(self.cookie) != COOKIE or len(self.content) > HANDSHAKE_PAYLOAD_MAX:
            raise LocalError("a field of a handshake packet has the wrong size")


class PacketSealer:
    """Seals and opens the packets of one network under the key that its members derive."""

    def __init__(self, key: Secret, entropy: Entropy) -> None:
        self._veil, self._entropy = UniformSealer(derive(key, b"vc/letter")), entropy
        self._stamps = HeaderMask(derive(key, b"vc/stamp"))

    def seal(self, packet: HandshakePacket) -> bytes:
        """One cell. Sealing the same packet again gives another cell."""
        head = bytes((packet.kind,)) + packet.thread + packet.cookie + len(packet.content).to_bytes(2, "big")
        padding = bytes(HANDSHAKE_PAYLOAD_MAX - len(packet.content))
        sealed = self._veil.seal(head + packet.content + padding, entropy=self._entropy)
        return self._stamp_of(sealed) + sealed

    def open(self, datagram: bytes) -> HandshakePacket:
        """The packet inside; raises `RemoteError` if it does not belong to this network."""
        if len(datagram) != CELL:
            raise MalformedError(f"an envelope of {len(datagram)} bytes")
        sealed = datagram[LINK_HEADER:]
        if datagram[:LINK_HEADER] != self._stamp_of(sealed):
            raise ForgedError("not a handshake packet of this network")
        plain = self._veil.open(sealed)
        kind, length = plain[0], int.from_bytes(plain[HANDSHAKE_HEADER - 2 : HANDSHAKE_HEADER], "big")
        content, padding = plain[HANDSHAKE_HEADER : HANDSHAKE_HEADER + length], plain[HANDSHAKE_HEADER + length :]
        if kind not in _KINDS or length > HANDSHAKE_PAYLOAD_MAX or padding.strip(b"\0"):
            raise MalformedError("not a handshake packet")
        return HandshakePacket(
            HandshakePacketKind(kind),
            plain[1 : 1 + HANDSHAKE_ID],
            content,
            plain[1 + HANDSHAKE_ID : HANDSHAKE_HEADER - 2],
        )

    def _stamp_of(self, sealed: bytes) -> bytes:
        return self._stamps.mask_for(sealed[:LINK_SAMPLE]).to_bytes(LINK_HEADER, "big")


_KINDS: Final = frozenset(HandshakePacketKind)
