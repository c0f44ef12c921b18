"""Inbound streams: from an accepted connection to the stream of a peer that is let in.

Strangers are limited before they show a certificate. The number of concurrent handshakes is bounded, in shares by
network prefix (`handshake_slots`), and each handshake has a few seconds. So strangers that hold connections open do not
shut out other peers.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Final

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.net.address import SocketAddress, format_address, listen_error, parse_address
from veilcast.net.close_reasons import CROWDED, EXHAUSTED, LATE, CloseReasons
from veilcast.net.handshake_slots import HandshakeSlots
from veilcast.net.stream import FrameStream
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import PeerIdentity, StreamSetup


class InboundStreams:
    """The listening sockets, and the callbacks of the streams whose handshake is under way."""

    def __init__(
        self,
        listen: Sequence[str | socket.socket],
        setup: StreamSetup,
        limits: StreamLimits,
        now: Callable[[], int],
        reasons: CloseReasons,
        let_in: Callable[[FrameStream, PeerIdentity], None],
    ) -> None:
        """`let_in` takes over the stream of a peer that may enter. `listen` has addresses, or sockets that listen
        already."""
        self._wanted = [parse_address(where) if isinstance(where, str) else where for where in listen]
        self._setup = setup
        self._limits, self._now, self._reasons, self._let_in = limits, now, reasons, let_in
        self._listeners: list[socket.socket] = []
        self._strangers: dict[FrameStream, asyncio.TimerHandle] = {}
        self._slots = HandshakeSlots[FrameStream](limits.handshakes, lambda stream: stream.has_sent)
        self.accepted = 0
        """Accepted connections, let in or not."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(format_address(bound.getsockname()) for bound in self._listeners)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for where in self._wanted:
            self._listeners.append(where if isinstance(where, socket.socket) else open_listener(*where))
        for bound in self._listeners:
            loop.add_reader(bound, self._accept, bound)
        if self._listeners:
            _raise_socket_limit(self._limits.callers + self._limits.handshakes + OTHERS)

    def close(self) -> None:
        for bound in self._listeners:
            self._loop.remove_reader(bound)
            bound.close()
        self._listeners.clear()
        for stream, timer in self._strangers.items():
            timer.cancel()
            self._slots.remove(stream)
            stream.end()
        self._strangers.clear()

    def handshake_done(self, stream: FrameStream, certificate: bytes) -> None:
        try:
            identity = self._setup.identify_caller(certificate)
            identity.check(self._now())
        except RemoteError as error:
            stream.drop(str(error))
        else:
            self._strangers.pop(stream).cancel()
            self._slots.remove(stream)
            self._let_in(stream, identity)

    def frames_received(self, stream: FrameStream, records: list[bytes]) -> None:
        raise AssertionError("a peer is not heard before it is let in")

    def drained(self, stream: FrameStream) -> None:
        """Ignored: a handshake has no backlog."""

    def stream_ended(self, stream: FrameStream, reason: str) -> None:
        timer = self._strangers.pop(stream, None)
        if timer is not None:
            timer.cancel()
            self._slots.remove(stream)
        self._reasons.add(reason)

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                caller, source = bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(bound)
                    return
                continue  # Gone before it was taken.
            self.accepted += 1
            if self._slots.refuses(format_address(source)):
                caller.close()
                self._reasons.add(CROWDED)
                continue
            victim = self._slots.victim()
            if victim is not None:
                victim.drop(CROWDED)
            stream = FrameStream(
                caller,
                self._setup.wrap_inbound(),
                self._setup.frame_format,
                self,
                self._loop,
                self._limits,
                called=True,
            )
            self._strangers[stream] = self._loop.call_later(self._limits.handshake_s, stream.drop, LATE)
            self._slots.add(stream, format_address(source))
            stream.start()

    def _rest(self, bound: socket.socket) -> None:
        """Stop accepting for `REST_S`: the system has no free sockets. Waiting callers stay in the queue of the
        system."""
        self._reasons.add(EXHAUSTED)
        self._loop.remove_reader(bound)
        self._loop.call_later(REST_S, self._accept_again, bound)

    def _accept_again(self, bound: socket.socket) -> None:
        if bound in self._listeners:
            self._loop.add_reader(bound, self._accept, bound)


def _raise_socket_limit(count: int) -> None:
    """Raise the limit of open files up to the hard limit. The soft limit is often 1,024."""
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if most == resource.RLIM_INFINITY else min(count, most)
    if given != resource.RLIM_INFINITY and given < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def open_listener(family: socket.AddressFamily, address: SocketAddress) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # A restarted process need not wait until the system has forgotten its old streams.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Each family has its own socket, as with UDP.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise listen_error("listen", address, error) from error
    return bound


ACCEPTS: Final = 64
"""Connections accepted in one turn, so that timers are hardly delayed."""
BACKLOG: Final = 256
OTHERS: Final = 128
"""Files and sockets that the process needs for other purposes."""
REST_S: Final = 1.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
