"""One stream on a non-blocking socket: handshake, frames in, frames out, and one end with a named reason.

The wrapper (`stream_setup.StreamWrapper`) transforms the bytes, and the frame format separates the frames; this module
moves bytes. So we decide what is sent: when a handshake fails or a frame is wrong, the other side sees only that the
stream ends. The reason goes to the callbacks.

A stream never blocks. It stores bytes that the system does not accept yet, up to a limit. Beyond the limit the peer
reads too slowly, and the stream ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from itertools import islice
from typing import Final, Protocol

from veilcast.errors import ExcessError, MalformedError
from veilcast.net.close_reasons import CLOSED, GARBLED, LEFT, SLOW, TOO_LONG, UNREACHABLE
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import BrokenStream, FrameFormat, StreamWrapper


class StreamCallbacks(Protocol):
    """The owner of a stream."""

    def handshake_done(self, stream: FrameStream, certificate: bytes) -> None:
        """The handshake is over. `certificate` is the peer's certificate (DER); empty if the peer showed none."""

    def frames_received(self, stream: FrameStream, records: list[bytes]) -> None: ...

    def drained(self, stream: FrameStream) -> None:
        """All stored bytes have been sent."""

    def stream_ended(self, stream: FrameStream, reason: str) -> None:
        """The stream has ended. Called at most once and last; not called if the owner ended the stream."""


class FrameStream:
    """A stream on a socket that is connected or connecting."""

    def __init__(
        self,
        bound: socket.socket,
        wrap: StreamWrapper,
        framing: FrameFormat,
        callbacks: StreamCallbacks,
        loop: asyncio.AbstractEventLoop,
        limits: StreamLimits,
        *,
        called: bool,
    ) -> None:
        """`called` is True if the peer called us, False if we call the peer."""
        bound.setblocking(False)
        _watch_over(bound)
        self.callbacks = callbacks
        self._socket, self._loop, self._write_max = bound, loop, limits.write_max
        self._wrap = wrap
        self._reader, self._head = framing.make_reader(limits.record_max), framing.make_head
        self._plain: list[bytes] = []
        """Frames that wait for the end of a turn, to be wrapped together."""
        self._waiting: deque[memoryview] = deque()
        """Wrapped bytes that the system has not accepted yet."""
        self._watching = False
        self._handshaken = False
        self._open = True
        self._handshake_bytes_left = HANDSHAKE_BYTES
        self.is_inbound: Final = called
        self.unsent = 0
        """Bytes that the system has not accepted yet."""
        self.sent = 0
        """Bytes that the system has accepted; tells a stalled stream from a slow one."""

    @property
    def has_sent(self) -> bool:
        """True if we have sent anything, or are about to."""
        return self.sent + self.unsent > 0

    def start(self) -> None:
        """Begin on a connected socket."""
        self._loop.add_reader(self._socket, self._readable)
        self._do_handshake(b"")

    def start_when_connected(self) -> None:
        self._loop.add_writer(self._socket, self._connected)

    def send(self, record: bytes) -> None:
        """Queue a frame; it leaves with the next `flush`."""
        self._plain += (self._head(record), record)

    def flush(self) -> None:
        """Send the queued frames; what the system does not accept yet stays in `unsent`."""
        if self._plain and self._open:
            plain = b"".join(self._plain)
            self._plain.clear()
            self._wrap.write(plain)
            self._push()

    def end(self) -> None:
        """Close the stream on our own decision: tell the peer that nothing more follows, if the system accepts that at
        once."""
        if self._open and self._handshaken and not self._waiting:
            self._wrap.close_notify()
            with contextlib.suppress(OSError):
                self._socket.send(self._wrap.outgoing())
        self._close()

    def drop(self, reason: str) -> None:
        """Close the stream at once, without a message to the peer."""
        if self._open:
            self._close()
            self.callbacks.stream_ended(self, reason)

    # --- events of the loop ------------------------------------------------------------------------------------

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
            self.drop(CLOSED if self._handshaken else LEFT)
            return
        if not self._handshaken:
            self._handshake_bytes_left -= len(data)
            self._do_handshake(data)
            data = b""
        if self._handshaken and self._open:
            self._read(data)

    # --- contents ---------------------------------------------------------------------------------------------

    def _do_handshake(self, data: bytes) -> None:
        try:
            self._handshaken = self._wrap.handshake(data)
        except BrokenStream as broken:
            self.drop(broken.reason)
            return
        self._push()
        if not self._open:
            return
        if self._handshaken:
            self.callbacks.handshake_done(self, self._wrap.peer_certificate())
        elif self._handshake_bytes_left < 0:
            self.drop(TOO_LONG)

    def _read(self, data: bytes) -> None:
        reason, records = "", list[bytes]()
        try:
            for chunk in self._wrap.read(data):
                records.extend(self._reader.feed(chunk))
        except BrokenStream as broken:
            reason = broken.reason
        except ExcessError:
            reason = TOO_LONG
        except MalformedError:
            reason = GARBLED
        if not reason:
            self._push()
        if records and self._open:
            self.callbacks.frames_received(self, records)
        if reason:
            self.drop(reason)

    def _push(self) -> None:
        """Hand bytes to the system; if some remain, wait until the socket is writable."""
        if fresh := self._wrap.outgoing():
            self._waiting.append(memoryview(fresh))
            self.unsent += len(fresh)
        try:
            while self._waiting:
                self._drop_sent(self._socket.sendmsg(islice(self._waiting, PIECES)))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.drop(CLOSED if self._handshaken else LEFT)
            return
        if self.unsent > self._write_max:
            self.drop(SLOW)
        elif self._watching and not self._waiting:
            self._watching = False
            self._loop.remove_writer(self._socket)
            self.callbacks.drained(self)
        elif self._waiting and not self._watching:
            self._watching = True
            self._loop.add_writer(self._socket, self._push)

    def _drop_sent(self, size: int) -> None:
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
    """Disable send delays, and detect within a minute that the peer is gone without a message."""
    with contextlib.suppress(OSError):  # Gone already.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _TCP.items():
            if hasattr(socket, option):
                bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


READ: Final = 1 << 18
PIECES: Final = 64
HANDSHAKE_BYTES: Final = 1 << 16
"""Bytes, more than any handshake of ours has; a peer that sends more speaks another protocol."""

_TCP: Final = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPALIVE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,
}
"""Socket options, each set where the system has it: seconds of silence, seconds between probes, number of probes, and
milliseconds that sent data may stay unacknowledged, which would otherwise be a quarter of an hour."""
