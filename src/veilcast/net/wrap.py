"""What the bytes of a stream are wrapped in: TLS, the words by which Tor's SOCKS port is asked for a call, or nothing.

A wrap has no I/O: a stream brings it what arrived and sends what it has to say. It begins with a handshake, which may
be empty, and ends in a named reason. A `Way` makes wraps for those who come and those whom we call, and says who they
are; it is all that one driver of streams has and another has not.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from veilcast.machine import Address
from veilcast.net.address import SocketAddress
from veilcast.net.framing import Framing


class BrokenWrap(Exception):  # noqa: N818 - the end of a stream is no error of ours
    """Nothing more can be read from this stream."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """One of `ends`."""


class Wrap(Protocol):
    def shake(self, data: bytes) -> bool:
        """Take what came, or nothing to begin with; whether the handshake is over. Raises `BrokenWrap`."""

    def shown(self) -> bytes:
        """The certificate of the other side (DER), when the handshake is over; empty where none is shown."""

    def write(self, plain: bytes) -> None: ...

    def read(self, data: bytes) -> Iterable[bytes]:
        """What is in it, and in what came after the handshake with its end. Raises `BrokenWrap` after the last."""

    def farewell(self) -> None:
        """Say that nothing more will be written."""

    def outgoing(self) -> bytes:
        """What is to be sent by now."""


class Guest(Protocol):
    """Somebody on the other side, as far as the wrap tells."""

    @property
    def name(self) -> Address:
        """Of one who has called us: the same whenever they come, if they have shown who they are."""

    def check(self, now: int) -> None:
        """Raise `RemoteError` unless they may be here now: asked when they come, and again for as long as they stay."""


class Nobody(NamedTuple):
    """One who has shown nothing, or needs not."""

    name: Address

    def check(self, now: int) -> None:
        """Everybody may be here."""


class Dialled(NamedTuple):
    """Where to connect to, and what to wrap the stream in."""

    family: socket.AddressFamily
    address: SocketAddress
    wrap: Wrap


class Way(Protocol):
    @property
    def framing(self) -> Framing: ...

    def answer(self) -> Wrap:
        """For one who calls us."""

    def dial(self, peer: Address) -> Dialled:
        """For one whom we call; `ConfigError` if this is no address."""

    def caller(self, certificate: bytes) -> Guest:
        """Who has called us, by what they have shown; `RemoteError` if they are none of ours."""

    def host(self, certificate: bytes, peer: Address) -> Guest:
        """Who has answered when this peer was called; `RemoteError` if it is none of ours, or another."""


class Bare:
    """Nothing at all."""

    def __init__(self) -> None:
        self._outgoing: list[bytes] = []

    def shake(self, data: bytes) -> bool:
        return True

    def shown(self) -> bytes:
        return b""

    def write(self, plain: bytes) -> None:
        self._outgoing.append(plain)

    def read(self, data: bytes) -> Iterable[bytes]:
        return (data,)

    def farewell(self) -> None:
        """The end of the connection says it."""

    def outgoing(self) -> bytes:
        sent = b"".join(self._outgoing)
        self._outgoing.clear()
        return sent
