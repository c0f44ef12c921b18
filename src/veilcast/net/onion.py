"""Drives one machine over streams that hide the caller: onion services, and one Tor circuit for each purpose.

Inbound peers are anonymous. Each inbound stream has a fresh name, "in:17"; the machine can answer on it and learns
nothing from it. An outbound peer is named by a purpose and an address, "hop@xyz.onion:80". Every call has a circuit of
its own, so calls for two purposes have no common caller.

Tor connects callers of our onion service to a doorway, a listening socket on loopback. Any other process on this
computer that connects there is anonymous, too. Strangers can come in any number and need no certificate. So when the
limit is reached, the peer that has been silent for the longest time gives setup.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Sequence
from itertools import count
from typing import Final, Unpack

from veilcast.errors import ConfigError
from veilcast.machine import Address, Machine
from veilcast.net.address import SocketAddress, parse_address
from veilcast.net.close_reasons import CROWDED
from veilcast.net.inbound import open_listener
from veilcast.net.records import RECORDS
from veilcast.net.socks import SocksWrapper
from veilcast.net.stream import FrameStream
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import AnonymousPeer, DialTarget, PeerIdentity, PlainWrapper, StreamWrapper
from veilcast.net.streams import BaseStreamDriver, DriverOptions


class OnionDriver(BaseStreamDriver):
    """Drives one machine. `listen` has doorways, or addresses as text."""

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str | socket.socket],
        reach: TorDialer | DirectDialer,
        **options: Unpack[DriverOptions],
    ) -> None:
        options["limits"] = options.get("limits") or ONION_LIMITS
        super().__init__(machine, listen=listen, setup=_OnionSetup(reach), **options)
        self._quiet: dict[FrameStream, None] = {}
        """Inbound streams, the one with the longest silence first."""

    def frames_received(self, stream: FrameStream, records: list[bytes]) -> None:
        if stream.is_inbound:
            del self._quiet[stream]
            self._quiet[stream] = None
        super().frames_received(stream, records)

    def _make_room(self) -> bool:
        next(iter(self._quiet)).drop(CROWDED)
        return True

    def _set_up(self, peer: Address, stream: FrameStream, identity: PeerIdentity) -> None:
        if stream.is_inbound:
            self._quiet[stream] = None
        super()._set_up(peer, stream, identity)

    def _forget(self, stream: FrameStream) -> None:
        self._quiet.pop(stream, None)
        super()._forget(stream)


class TorDialer:
    """Dials onion services through the SOCKS port of Tor, each call on a circuit of its own; no other target is
    allowed."""

    def __init__(self, socks: SocketAddress) -> None:
        self.socks = socks
        self._family = socket.AF_INET6 if len(socks) == 4 else socket.AF_INET

    def dial(self, purpose: str, place: str) -> DialTarget:
        match = ONION_ADDRESS.fullmatch(place)
        if match is None:
            raise ConfigError("this is no onion service")
        # The purpose alone would keep one caller's streams apart, but not those of two nodes that share a Tor. A
        # fresh password does both, and a repeated call does not meet the circuit that failed.
        user, password = purpose.encode(), secrets.token_bytes(16)
        return DialTarget(self._family, self.socks, SocksWrapper(match["host"], int(match["port"]), user, password))


class DirectDialer:
    """Dials "purpose@127.0.0.1:4000" without Tor, for tests and comparisons: no peer is anonymous."""

    def dial(self, purpose: str, place: str) -> DialTarget:
        return DialTarget(*parse_address(place), PlainWrapper())


def open_doorway() -> socket.socket:
    """Open a listening socket on loopback for Tor to connect callers to; a driver takes the socket over."""
    return open_listener(socket.AF_INET, ("127.0.0.1", 0))


class _OnionSetup:
    """The stream setup of anonymous peers."""

    frame_format = RECORDS

    def __init__(self, reach: TorDialer | DirectDialer) -> None:
        self._reach = reach
        self._numbers = count()

    def wrap_inbound(self) -> StreamWrapper:
        return PlainWrapper()

    def dial(self, peer: Address) -> DialTarget:
        purpose, _, place = peer.partition("@")
        if not PURPOSE.fullmatch(purpose):
            raise ConfigError("no purpose is named")
        return self._reach.dial(purpose, place)

    def identify_caller(self, certificate: bytes) -> PeerIdentity:
        return AnonymousPeer(Address(f"in:{next(self._numbers)}"))

    def identify_callee(self, certificate: bytes, peer: Address) -> PeerIdentity:
        return _ANYBODY


ONION_ADDRESS: Final = re.compile(r"(?P<host>[a-z2-7]{56}\.onion):(?P<port>[1-9][0-9]{0,4})", re.ASCII)
"""Onion addresses of version 3."""
PURPOSE: Final = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)
ONION_LIMITS: Final = StreamLimits(
    write_max=4 << 20,
    waiting_max=64 << 20,
    callers=1024,
    calls=1024,
    handshake_s=20.0,
    backoff_s=1.0,
    review_s=30.0,
)
"""Building a circuit takes seconds; a circuit that takes much longer is best replaced. Peers cannot be held to
account."""
_ANYBODY: Final = AnonymousPeer(Address(""))
"""Tor has checked that the peer at an onion address has the key of that address."""
