"""Drives one machine that speaks MQTT, over streams to a broker: plain on this computer, or in TLS.

A frame is one MQTT packet, so frames have no prefix, and a broker sends no welcome. The contents of packets are the
machine's business; the frame format that finds the end of a packet is handed in.

A broker is no member. Its certificate is checked like any named certificate: against the authorities that the system
trusts or those of a file, and for the name in the member's file. Without TLS, only a broker on this computer is called.
A broker's address is numeric or a host name, which is looked up for each call: addresses of a managed service move. A
lookup tells the name server which broker is used.

A machine may want several streams to one broker at the same time, for example the end of one session and the start of
the next. The text before an "@" tells the streams apart and is no part of the address.
"""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NoReturn, Unpack

from veilcast.errors import ConfigError
from veilcast.machine import Address, Machine
from veilcast.net.address import parse_address
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import AnonymousPeer, DialTarget, FrameFormat, PeerIdentity, PlainWrapper
from veilcast.net.streams import BaseStreamDriver, DriverOptions
from veilcast.net.tls import TlsWrapper


class MqttDriver(BaseStreamDriver):
    """Drives one machine that only dials."""

    def __init__(self, machine: Machine, *, broker: MqttSetup, **options: Unpack[DriverOptions]) -> None:
        options["limits"] = options.get("limits") or MQTT_LIMITS
        super().__init__(machine, listen=(), setup=broker, **options)


class MqttSetup:
    """The stream setup for an MQTT broker, which never calls us. Without a TLS context, the broker must be on this
    computer."""

    def __init__(self, framing: FrameFormat, tls: ssl.SSLContext | None = None, name: str = "") -> None:
        """`name` is the name that the broker's certificate must have."""
        self.frame_format, self._tls, self._name = framing, tls, name

    def dial(self, peer: Address) -> DialTarget:
        where = peer.rpartition("@")[2]
        if self._tls is not None:
            wrapper = TlsWrapper(self._tls, called=False, host=self._name)
            try:
                return DialTarget(*parse_address(where), wrapper)
            except ConfigError:
                host, _, port = where.rpartition(":")
                if not (host and port.isdecimal()):
                    raise
                return DialTarget(socket.AF_UNSPEC, (host, int(port)), wrapper)
        family, address = parse_address(where)
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
    """Make a context that trusts the authorities of a PEM file, or without a file those of the system, and checks
    names."""
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:  # Of OpenSSL, too.
        raise ConfigError(f"{authorities} is no file of certificates that can be read") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


MQTT_LIMITS: Final = StreamLimits(patience_s=10.0, backoff_max_s=10.0)
"""There is one peer, and the machine needs it."""
_BROKER_IDENTITY: Final = AnonymousPeer(Address(""))
"""TLS checks the broker's certificate, if it has one; the machine checks what the broker does."""
