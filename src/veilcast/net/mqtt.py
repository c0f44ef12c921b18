"""Drives one machine that speaks MQTT, over streams to a broker: plain on this machine, or in TLS.

A frame is one packet, so nothing goes before it, and a broker says nothing before it is asked. What is in a packet is
the machine's business; the cutter that finds its end is handed in with the framing.

A broker is no member of ours. Its certificate is checked as everybody's is who has a name: against the authorities that
the system trusts or those of a file, and for the name that its owner has told us. In the clear we talk to this machine
alone. The broker's address is a number, since to look up a name would tell a stranger whom we talk to.

A machine may want several streams to one broker at a time, as for the end of one session and the beginning of the next:
what stands before an "@" tells them apart, and is no part of the address.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from veilcast.errors import ConfigError
from veilcast.machine import Address, Event, Machine
from veilcast.net.address import parse_address
from veilcast.net.clock import SystemClock
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import AnonymousPeer, DialTarget, FrameFormat, PeerIdentity, PlainWrapper
from veilcast.net.streams import BaseStreamDriver
from veilcast.net.tls import TlsWrapper


class MqttDriver(BaseStreamDriver):
    """One machine, which only calls."""

    def __init__(
        self,
        machine: Machine,
        *,
        broker: MqttSetup,
        act_on: Callable[[Event], object],
        clock: SystemClock | None = None,
        limits: StreamLimits | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(
            machine, listen=(), way=broker, act_on=act_on, clock=clock, limits=limits or MQTT_LIMITS, rng=rng
        )


class MqttSetup:
    """Fulfils `wrap.Way`; nobody calls us. Without a context for TLS, on this machine alone."""

    def __init__(self, framing: FrameFormat, tls: ssl.SSLContext | None = None, name: str = "") -> None:
        """`name`: what its certificate must be for."""
        self.frame_format, self._tls, self._name = framing, tls, name

    def dial(self, peer: Address) -> DialTarget:
        family, address = parse_address(peer.rpartition("@")[2])
        if self._tls is not None:
            return DialTarget(family, address, TlsWrapper(self._tls, called=False, host=self._name))
        if not ip_address(address[0]).is_loopback:
            raise ConfigError("a broker beyond this machine is called with TLS")
        return DialTarget(family, address, PlainWrapper())

    def identify_callee(self, certificate: bytes, peer: Address) -> PeerIdentity:
        return _BROKER_IDENTITY

    def wrap_inbound(self) -> NoReturn:
        raise AssertionError("nobody calls a client of a broker")

    def identify_caller(self, certificate: bytes) -> NoReturn:
        raise AssertionError("nobody calls a client of a broker")


def make_tls_context(authorities: Path | None) -> ssl.SSLContext:
    """Those of a file (PEM), or without one those that the system trusts; names are checked."""
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:  # Of OpenSSL, too.
        raise ConfigError(f"{authorities} is no file of certificates that can be read") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


MQTT_LIMITS: Final = StreamLimits(patience_s=10.0, backoff_max_s=10.0)
"""There is one peer, and it is needed."""
_BROKER_IDENTITY: Final = AnonymousPeer(Address(""))
"""Its certificate, where it has one, is checked in the handshake; what it does is checked by the machine."""
