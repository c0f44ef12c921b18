"""How streams of one kind are set up: frame format, wrapper and peer identity.

A frame format says how a stream of bytes holds frames. Our own processes send records (`records`); other protocols have
packets that contain their length. A wrapper transforms the bytes: TLS, the SOCKS dialogue with Tor, or nothing. A
wrapper has no I/O: a stream hands it what arrived and sends what it returns. It begins with a handshake, which may be
empty, and ends with a named reason. A `StreamSetup` makes wrappers for inbound and outbound streams and identifies the
peers; nothing else differs between the stream drivers.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from veilcast.machine import Address
from veilcast.net.address import SocketAddress


class FrameReader(Protocol):
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that end in this chunk. Raises `ExcessError` for a frame that is too long, and
        `MalformedError` for bytes that contain no frames."""


class FrameFormat(NamedTuple):
    make_reader: Callable[[int], FrameReader]
    """Makes a reader; the argument is the largest size of a frame in bytes."""
    make_head: Callable[[bytes], bytes]
    """Returns the bytes that precede a frame."""
    has_welcome: bool
    """True if the callee accepts the connection with an empty frame."""


class BrokenStream(Exception):  # noqa: N818 - the end of a stream is no error of ours
    """Nothing more can be read from this stream."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """One of `close_reasons`."""


class StreamWrapper(Protocol):
    def handshake(self, data: bytes) -> bool:
        """Process received bytes; empty for the first call. Returns True when the handshake is over. Raises
        `BrokenStream`."""

    def peer_certificate(self) -> bytes:
        """Return the peer's certificate (DER) after the handshake; empty if the peer showed none."""

    def write(self, plain: bytes) -> None: ...

    def read(self, data: bytes) -> Iterable[bytes]:
        """Return the contents of received bytes, including bytes that came with the end of the handshake. Raises
        `BrokenStream` after the last content."""

    def close_notify(self) -> None:
        """Tell the peer that nothing more will be written."""

    def outgoing(self) -> bytes:
        """Return the bytes to send now."""


class PeerIdentity(Protocol):
    """The peer, as far as the wrapper can tell."""

    @property
    def name(self) -> Address:
        """For an inbound peer: the same name on every connection, if the peer has shown who it is."""

    def check(self, now: int) -> None:
        """Raise `RemoteError` unless the peer may be connected now. Called when the peer connects, and again in every
        review."""


class AnonymousPeer(NamedTuple):
    """A peer that has shown no certificate, or does not need one."""

    name: Address

    def check(self, now: int) -> None:
        """Every peer may be connected."""


class DialTarget(NamedTuple):
    """The socket address to dial, and the wrapper of the stream. With the family `AF_UNSPEC` the address has a host
    name, which is looked up for each call."""

    family: socket.AddressFamily
    address: SocketAddress
    wrap: StreamWrapper


class StreamSetup(Protocol):
    @property
    def frame_format(self) -> FrameFormat: ...

    def wrap_inbound(self) -> StreamWrapper:
        """Make the wrapper for an inbound stream."""

    def dial(self, peer: Address) -> DialTarget:
        """Make the wrapper for an outbound stream. Raises `ConfigError` if `peer` is no address."""

    def identify_caller(self, certificate: bytes) -> PeerIdentity:
        """Identify an inbound peer by its certificate. Raises `RemoteError` if it does not belong to our network."""

    def identify_callee(self, certificate: bytes, peer: Address) -> PeerIdentity:
        """Identify the peer that answered this call. Raises `RemoteError` if it does not belong to our network, or is
        another peer."""


class PlainWrapper:
    """Sends bytes as they are."""

    def __init__(self) -> None:
        self._outgoing: list[bytes] = []

    def handshake(self, data: bytes) -> bool:
        return True

    def peer_certificate(self) -> bytes:
        return b""

    def write(self, plain: bytes) -> None:
        self._outgoing.append(plain)

    def read(self, data: bytes) -> Iterable[bytes]:
        return (data,)

    def close_notify(self) -> None:
        """The end of the connection says it."""

    def outgoing(self) -> bytes:
        sent = b"".join(self._outgoing)
        self._outgoing.clear()
        return sent
