"""TLS 1.3 between our processes: both sides show a certificate of one authority.

The identity is handed in: certificates, and functions that judge the certificates of others. OpenSSL checks the
signatures up to the authority, the dates, and that the callee's certificate is for a server. Host names are not
checked, because certificates name keys. Sessions are never resumed, so every connection checks the certificates again.

TLS runs in memory, so we decide what is sent: when a handshake fails or a record is wrong, OpenSSL's alert stays in
memory, and the other side sees only that the stream ends.

Python reads a certificate and its key from files only. Ours go through pipes, so the key is never on a disk.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from veilcast.errors import ForgedError
from veilcast.machine import Address
from veilcast.net.address import parse_address, split_pinned
from veilcast.net.close_reasons import ANOTHER, CLOSED, MISNAMED, NOT_TLS, OVER, STRANGE, UNFIT, UNSHOWN, UNTRUSTED
from veilcast.net.records import RECORDS
from veilcast.net.stream_setup import BrokenStream, DialTarget, PeerIdentity, StreamWrapper

CertificateJudge: TypeAlias = Callable[[bytes], PeerIdentity]
"""Reads a certificate (DER) whose signatures are valid. Raises `RemoteError` if it does not belong to our network."""


@dataclass(frozen=True, kw_only=True)
class StreamIdentity:
    """Our certificate chain (PEM, our own certificate first) and key, the trusted anchor, and the judges of other
    certificates."""

    chain: bytes
    key: bytes = field(repr=False)
    anchor: bytes
    callers: CertificateJudge
    """Judges inbound peers."""
    hosts: CertificateJudge
    """Judges outbound peers."""


class TlsSetup:
    """The stream setup with certificates on both sides. If an address is pinned to a name, only the peer with that name
    may answer, whatever role its certificate has."""

    frame_format = RECORDS

    def __init__(self, identity: StreamIdentity) -> None:
        self._server, self._client = server_context(identity), client_context(identity)
        self.identify_caller, self._hosts = identity.callers, identity.hosts

    def wrap_inbound(self) -> StreamWrapper:
        return TlsWrapper(self._server, called=True)

    def dial(self, peer: Address) -> DialTarget:
        return DialTarget(*parse_address(split_pinned(peer)[1]), TlsWrapper(self._client, called=False))

    def identify_callee(self, certificate: bytes, peer: Address) -> PeerIdentity:
        peer_identity, (name, _) = self._hosts(certificate), split_pinned(peer)
        if name and peer_identity.name != name:
            raise ForgedError(ANOTHER)
        return peer_identity


class TlsWrapper:
    def __init__(self, context: ssl.SSLContext, *, called: bool, host: str | None = None) -> None:
        """`called` is True if the peer called us. Otherwise we call, and `host` is the name that the peer's certificate
        must have; None if names are not checked."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=called, server_hostname=host)
        self._strange = STRANGE if host is None else UNTRUSTED
        self.outgoing = self._outgoing.read

    def handshake(self, data: bytes) -> bool:
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise BrokenStream(_close_reason(error, self._strange)) from error
        return True

    def peer_certificate(self) -> bytes:
        return self._tls.getpeercert(binary_form=True) or b""

    def write(self, plain: bytes) -> None:
        rest = memoryview(plain)
        while rest:
            rest = rest[self._tls.write(rest) :]

    def read(self, data: bytes) -> Iterator[bytes]:
        self._incoming.write(data)
        try:
            # Asking first is cheaper than an exception at the end.
            while self._incoming.pending or self._tls.pending():
                chunk = self._tls.read(TLS_RECORD)
                if not chunk:
                    raise BrokenStream(CLOSED)
                yield chunk
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # An alert, which our own processes never send, or forged bytes.
            raise BrokenStream(CLOSED) from error

    def close_notify(self) -> None:
        # Says so, and wants to hear the same, which we do not wait for.
        with suppress(ssl.SSLError):
            self._tls.unwrap()


def server_context(identity: StreamIdentity) -> ssl.SSLContext:
    """Make the context for inbound peers. They get no session ticket, so they cannot return without showing a
    certificate."""
    context = _context(identity, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0
    return context


def client_context(identity: StreamIdentity) -> ssl.SSLContext:
    """Make the context for outbound peers."""
    context = _context(identity, ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return context


def _context(identity: StreamIdentity, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=identity.anchor.decode())
    with _readable(identity.chain) as chain, _readable(identity.key) as key:
        context.load_cert_chain(chain, key)
    return context


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """Yield a path at which these bytes can be read once; a pipe holds the few kilobytes."""
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)


def _close_reason(error: ssl.SSLError, strange: str) -> str:
    """Translate an error of OpenSSL into a close reason; `strange` if the signer is unknown."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code, strange)
    return _REASONS.get(error.reason or "", NOT_TLS)


TLS_RECORD: Final = 1 << 14
"""Bytes of one TLS record: OpenSSL returns no more at a time."""
_CERTIFICATE: Final = {9: OVER, 10: OVER, 26: UNFIT, 62: MISNAMED, 64: MISNAMED}
"""Close reasons by OpenSSL's numbers: not yet valid, expired, wrong purpose, wrong name or address."""
_REASONS: Final = {"PEER_DID_NOT_RETURN_A_CERTIFICATE": UNSHOWN}
