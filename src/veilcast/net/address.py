"""UDP and TCP addresses as text: "127.0.0.1:4000", "[::1]:4000", "[fe80::1%2]:4000".

Machines compare addresses and never parse them, so each address has exactly one text: the one that `format_address`
returns. Host names are refused, because a name lookup would tell a name server which peers this process talks to; only
an MQTT broker may have one (`net.mqtt`).

A pinned address starts with the name that the peer's certificate must have: "broker:0a1b...@127.0.0.1:4000". Without a
pinned name, any peer of the right role may answer.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from typing import Final, TypeAlias

from veilcast.errors import ConfigError, StorageError
from veilcast.machine import Address

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


def parse_address(text: str) -> tuple[socket.AddressFamily, SocketAddress]:
    """Return the socket family and the socket address. Raises `ConfigError` if the text is no address and port."""
    match = _FORM.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        port = int(match["port"])
        if port > 0xFFFF:
            raise ValueError
        if match["four"] is not None:
            return socket.AF_INET, (str(ipaddress.IPv4Address(match["four"])), port)
        six = ipaddress.IPv6Address(match["six"])
        scope = int(six.scope_id) if six.scope_id else 0
        return socket.AF_INET6, (str(six).partition("%")[0], port, 0, scope)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no address and port; write 192.0.2.1:4000 or [2001:db8::1]:4000, with numbers only"
        ) from error


def format_address(address: SocketAddress) -> Address:
    """Return the text of a socket address."""
    if len(address) == 2:
        return Address(f"{address[0]}:{address[1]}")
    host, port, _, scope = address
    return Address(f"[{host}%{scope}]:{port}" if scope else f"[{host}]:{port}")


def split_pinned(text: str) -> tuple[str, str]:
    """Split a pinned address into the certificate name and the address. The name is empty if any peer of the role may
    answer."""
    name, _, where = text.rpartition("@")
    return name, where


def listen_error(key: str, address: SocketAddress, error: OSError) -> StorageError:
    """Make the error for an address that the system does not let this process listen at. `key` is the key of the
    file."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = _HINTS.get(error.errno or 0, "")
    return StorageError(f"{key}: cannot use {format_address(address)}: {reason}{hint}")


_HINTS: Final = {
    errno.EADDRINUSE: "; if this process runs already, stop that one first, or else name another port",
    errno.EADDRNOTAVAIL: "; name an address that this machine has",
    errno.EACCES: "; name a port from 1024 on",
}
_FORM: Final = re.compile(
    r"(?:(?P<four>[0-9.]+)|\[(?P<six>[0-9A-Fa-f:.]+(?:%[0-9]+)?)\]):(?P<port>[0-9]{1,5})", re.ASCII
)
