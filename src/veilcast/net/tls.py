"""Who we are on TLS, and the contexts that say so: TLS 1.3 alone, and both sides show a certificate of one authority.

What is in a certificate, and whom it admits, is decided elsewhere and handed in; OpenSSL checks the signatures up to
the authority's, the dates, and that whoever answers a call may. Host names are not checked, since there are none: a
certificate names a key. Sessions are never resumed, so that everybody is looked at anew every time.

Python takes a certificate and its key from files only. Ours come through pipes, so that the key is never on a disk.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from veilcast.machine import Address


class Guest(Protocol):
    """Somebody who has shown a certificate of our authority, and proved to hold its key."""

    @property
    def name(self) -> Address:
        """The same whenever they come, from wherever."""

    def check(self, now: int) -> None:
        """Raise `RemoteError` unless they may be here now: asked when they come, and again for as long as they stay."""


Judge: TypeAlias = Callable[[bytes], Guest]
"""Reads a certificate (DER), of which the signatures hold; raises `RemoteError` if it is none of ours."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What we show (PEM, our own certificate first), whose word counts, and who judges the others."""

    chain: bytes
    key: bytes = field(repr=False)
    anchor: bytes
    callers: Judge
    """Of those who call us."""
    hosts: Judge
    """Of those whom we call."""


def server_context(identity: Identity) -> ssl.SSLContext:
    """For those who call us. They get no ticket by which they could come back unseen."""
    context = _context(identity, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0
    return context


def client_context(identity: Identity) -> ssl.SSLContext:
    """For those whom we call."""
    context = _context(identity, ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return context


def _context(identity: Identity, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=identity.anchor.decode())
    with _readable(identity.chain) as chain, _readable(identity.key) as key:
        context.load_cert_chain(chain, key)
    return context


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """A path at which these bytes can be read once; a few kilobytes, which a pipe holds."""
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
