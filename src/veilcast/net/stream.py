"""One TLS stream on a non-blocking socket: handshake, records in, records out, and one end with a named reason.

TLS runs in memory here and we move the bytes ourselves. So what goes out is ours to decide: when a handshake fails, or
a record is wrong, OpenSSL's alert stays in memory, and the other side sees the stream end and no more. The reason is
for whoever owns the stream.

A stream never waits. What the system will not take now is kept up to a limit; past it, the other side reads too slowly
and the stream ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from itertools import islice
from typing import Final, Protocol

from veilcast.errors import ExcessError
from veilcast.net.ends import CLOSED, LEFT, NOT_TLS, OVER, SLOW, STRANGE, TOO_LONG, UNFIT, UNREACHABLE, UNSHOWN
from veilcast.net.limits import Limits
from veilcast.net.records import Reader, prefix


class Ears(Protocol):
    """Who owns a stream."""

    def shaken(self, stream: Stream, certificate: bytes) -> None:
        """The handshake is over, and this is what the other side has shown (DER)."""

    def heard(self, stream: Stream, records: list[bytes]) -> None: ...

    def calm(self, stream: Stream) -> None:
        """What was kept for it has been sent."""

    def ended(self, stream: Stream, reason: str) -> None:
        """Once, and the last that is heard of it, unless the owner ended it."""


class Stream:
    """From a socket that is connected, or about to be."""

    def __init__(
        self,
        bound: socket.socket,
        context: ssl.SSLContext,
        ears: Ears,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        *,
        called: bool,
    ) -> None:
        """`called`: by the other side; otherwise we are calling."""
        bound.setblocking(False)
        _watch_over(bound)
        self.ears = ears
        self._socket, self._loop, self._write_max = bound, loop, limits.write_max
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=called)
        self._reader = Reader(limits.record_max)
        self._plain: list[bytes] = []
        """Records that wait for the end of a turn, to be encrypted together."""
        self._waiting: deque[memoryview] = deque()
        """What the system has not taken yet, encrypted."""
        self._watching = False
        self._shaken = False
        self._open = True
        self._patience = HANDSHAKE_BYTES
        self.called: Final = called
        self.unsent = 0
        """How many bytes wait for the system."""
        self.sent = 0
        """How many it has taken, so that a stream that stands still can be told from a slow one."""

    def start(self) -> None:
        """Begin on a socket that is connected."""
        self._loop.add_reader(self._socket, self._readable)
        if not self.called:
            self._shake()

    def start_when_connected(self) -> None:
        self._loop.add_writer(self._socket, self._connected)

    def send(self, record: bytes) -> None:
        """Put a record on its way; it leaves with the next `flush`."""
        self._plain += (prefix(record), record)

    def flush(self) -> None:
        """Let go what was put on its way; what the system will not take yet stays in `unsent`."""
        if self._plain and self._open:
            rest = memoryview(b"".join(self._plain))
            self._plain.clear()
            while rest:
                rest = rest[self._tls.write(rest) :]
            self._push()

    def end(self) -> None:
        """By our own will: the other side is told that nothing more comes, if there is room to say so."""
        if self._open and self._shaken and not self._waiting:
            with contextlib.suppress(ssl.SSLError, OSError):
                try:
                    self._tls.unwrap()  # Says so, and wants to hear the same, which we do not wait for.
                finally:
                    self._socket.send(self._outgoing.read())
        self._close()

    def drop(self, reason: str) -> None:
        """At once and without a word to the other side."""
        if self._open:
            self._close()
            self.ears.ended(self, reason)

    # --- what the event loop brings ---------------------------------------------------------------------------

    def _connected(self) -> None:
        self._loop.remove_writer(self._socket)
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.drop(UNREACHABLE)
        else:
            self.start()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.drop(CLOSED if self._shaken else LEFT)
            return
        self._incoming.write(data)
        if not self._shaken:
            self._patience -= len(data)
            self._shake()
        if self._shaken and self._open:
            self._read()

    # --- TLS --------------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            if self._patience < 0:
                self.drop(TOO_LONG)
        except ssl.SSLError as error:
            self.drop(_why(error))
        else:
            self._shaken = True
            self._push()
            if self._open:
                self.ears.shaken(self, self._tls.getpeercert(binary_form=True) or b"")

    def _read(self) -> None:
        reason, records = "", list[bytes]()
        try:
            # Asking first is cheaper than being told that there is no more.
            while not reason and (self._incoming.pending or self._tls.pending()):
                chunk = self._tls.read(TLS_RECORD)
                records.extend(self._reader.feed(chunk))
                reason = "" if chunk else CLOSED
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            # An alert of a side that is not like ours, which sends none; or bytes that nobody sent.
            reason = CLOSED
        except ExcessError:
            reason = TOO_LONG
        if self._outgoing.pending:
            self._push()
        if records and self._open:
            self.ears.heard(self, records)
        if reason:
            self.drop(reason)

    def _push(self) -> None:
        """Give the system what it takes; for the rest, watch for room."""
        if fresh := self._outgoing.read():
            self._waiting.append(memoryview(fresh))
            self.unsent += len(fresh)
        try:
            while self._waiting:
                self._took(self._socket.sendmsg(islice(self._waiting, PIECES)))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.drop(CLOSED if self._shaken else LEFT)
            return
        if self.unsent > self._write_max:
            self.drop(SLOW)
        elif self._watching and not self._waiting:
            self._watching = False
            self._loop.remove_writer(self._socket)
            self.ears.calm(self)
        elif self._waiting and not self._watching:
            self._watching = True
            self._loop.add_writer(self._socket, self._push)

    def _took(self, size: int) -> None:
        self.unsent -= size
        self.sent += size
        while size:
            piece = self._waiting.popleft()
            if size < len(piece):
                self._waiting.appendleft(piece[size:])
            size -= min(size, len(piece))

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


def _watch_over(bound: socket.socket) -> None:
    """Let the system send at once, and notice within a minute that the other side is gone without a word."""
    with contextlib.suppress(OSError):  # Gone already.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP.items():
            if hasattr(socket, option):
                bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _why(error: ssl.SSLError) -> str:
    """Of what OpenSSL says, a word from our own list."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code, STRANGE)
    return _REASONS.get(error.reason or "", NOT_TLS)


READ: Final = 1 << 18
TLS_RECORD: Final = 1 << 14
"""OpenSSL hands out no more at a time."""
PIECES: Final = 64
HANDSHAKE_BYTES: Final = 1 << 16
"""More than any handshake of ours has; who sends more before it is over wants something else."""

_TCP: Final = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPALIVE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,
}
"""Each where the system has it: seconds of silence, seconds between questions, how many of these; and milliseconds that
something sent may stay without an acknowledgement, which would otherwise be a quarter of an hour."""
_CERTIFICATE: Final = {9: OVER, 10: OVER, 26: UNFIT}
"""By the numbers of OpenSSL: not yet valid, expired, of another purpose."""
_REASONS: Final = {"PEER_DID_NOT_RETURN_A_CERTIFICATE": UNSHOWN}
