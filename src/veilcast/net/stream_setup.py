"""What the bytes of a stream are wrapped in: TLS, the words by which Tor's SOCKS port is asked for a call, or nothing.

A wrap has no I/O: a stream brings it what arrived and sends what it has to say. It begins with a handshake, which may
be empty, and ends in a named reason. A `StreamSetup` makes wraps for those who come and those whom we call, and says
who they
are; it is all that one driver of streams has and another has not.


How a stream of bytes holds frames: what goes before each on its way out, and what cuts them out again.

It is one thing that differs between those whom a driver of streams talks to; what they are wrapped in (`wrap`) is the
other. Our own processes send records (`records`). Others have a protocol of their own, whose packets say themselves how
long they are."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from veilcast.machine import Address
from veilcast.net.address import SocketAddress


class FrameReader(Protocol):
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that end in this chunk. `ExcessError` where one is too long; `MalformedError` for bytes that no
        frames are made of."""


class FrameFormat(NamedTuple):
    make_reader: Callable[[int], FrameReader]
    """Made from the bytes that one frame may have."""
    make_head: Callable[[bytes], bytes]
    """What goes before a frame."""
    has_welcome: bool
    """Whether who is called sends an empty frame to say that the caller is let in."""


class BrokenStream(Exception):  # noqa: N818 - the end of a stream is no error of ours
    """Nothing more can be read from this stream."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """One of `ends`."""


class StreamWrapper(Protocol):
    def handshake(self, data: bytes) -> bool:
        """Take what came, or nothing to begin with; whether the handshake is over. Raises `BrokenStream`."""

    def peer_certificate(self) -> bytes:
        """The certificate of the other side (DER), when the handshake is over; empty where none is shown."""

    def write(self, plain: bytes) -> None: ...

    def read(self, data: bytes) -> Iterable[bytes]:
        """What is in it, and in what came after the handshake with its end. Raises `BrokenStream` after the last."""

    def close_notify(self) -> None:
        """Say that nothing more will be written."""

    def outgoing(self) -> bytes:
        """What is to be sent by now."""


class PeerIdentity(Protocol):
    """Somebody on the other side, as far as the wrap tells."""

    @property
    def name(self) -> Address:
        """Of one who has called us: the same whenever they come, if they have shown who they are."""

    def check(self, now: int) -> None:
        """Raise `RemoteError` unless they may be here now: asked when they come, and again for as long as they stay."""


class AnonymousPeer(NamedTuple):
    """One who has shown nothing, or needs not."""

    name: Address

    def check(self, now: int) -> None:
        """Everybody may be here."""


class DialTarget(NamedTuple):
    """Where to connect to, and what to wrap the stream in."""

    family: socket.AddressFamily
    address: SocketAddress
    wrap: StreamWrapper


class StreamSetup(Protocol):
    @property
    def frame_format(self) -> FrameFormat: ...

    def wrap_inbound(self) -> StreamWrapper:
        """For one who calls us."""

    def dial(self, peer: Address) -> DialTarget:
        """For one whom we call; `ConfigError` if this is no address."""

    def identify_caller(self, certificate: bytes) -> PeerIdentity:
        """Who has called us, by what they have shown; `RemoteError` if they are none of ours."""

    def identify_callee(self, certificate: bytes, peer: Address) -> PeerIdentity:
        """Who has answered when this peer was called; `RemoteError` if it is none of ours, or another."""


class PlainWrapper:
    """Nothing at all."""

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
