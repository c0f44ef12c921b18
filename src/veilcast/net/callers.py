"""Those who call us: from a connection of anybody to a stream of a guest who is let in.

What strangers can do is limited before they are known: so many handshakes at a time, in shares by prefix
(`handshake_slots`), and a few seconds for each. So strangers that hold connections open shut nobody else out.
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
from veilcast.net.address import SocketAddress, name, parse, unusable
from veilcast.net.ends import CROWDED, EXHAUSTED, LATE, Ends
from veilcast.net.handshake_slots import HandshakeSlots
from veilcast.net.limits import Limits
from veilcast.net.stream import Stream
from veilcast.net.wrap import Guest, Way


class Callers:
    """The listening sockets, and the streams whose handshake is under way: `stream.Ears` of these."""

    def __init__(
        self,
        listen: Sequence[str | socket.socket],
        way: Way,
        limits: Limits,
        now: Callable[[], int],
        ends: Ends,
        let_in: Callable[[Stream, Guest], None],
    ) -> None:
        """`let_in` takes over the streams of those who may be here, if there is room for them. Whoever listens already
        can be taken over, too."""
        self._wanted = [parse(where) if isinstance(where, str) else where for where in listen]
        self._way = way
        self._limits, self._now, self._ends, self._let_in = limits, now, ends, let_in
        self._listeners: list[socket.socket] = []
        self._strangers: dict[Stream, asyncio.TimerHandle] = {}
        self._slots = HandshakeSlots[Stream](limits.handshakes, lambda stream: stream.answered)
        self.accepted = 0
        """Connections, whatever became of them."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(name(bound.getsockname()) for bound in self._listeners)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for where in self._wanted:
            self._listeners.append(where if isinstance(where, socket.socket) else listening(*where))
        for bound in self._listeners:
            loop.add_reader(bound, self._accept, bound)
        if self._listeners:
            _ask_for_sockets(self._limits.callers + self._limits.handshakes + OTHERS)

    def close(self) -> None:
        for bound in self._listeners:
            self._loop.remove_reader(bound)
            bound.close()
        self._listeners.clear()
        for stream, alarm in self._strangers.items():
            alarm.cancel()
            self._slots.remove(stream)
            stream.end()
        self._strangers.clear()

    def shaken(self, stream: Stream, certificate: bytes) -> None:
        try:
            guest = self._way.caller(certificate)
            guest.check(self._now())
        except RemoteError as error:
            stream.drop(str(error))
        else:
            self._strangers.pop(stream).cancel()
            self._slots.remove(stream)
            self._let_in(stream, guest)

    def heard(self, stream: Stream, records: list[bytes]) -> None:
        raise AssertionError("nobody is heard before it is let in")

    def calm(self, stream: Stream) -> None:
        """A handshake waits for nobody."""

    def ended(self, stream: Stream, reason: str) -> None:
        alarm = self._strangers.pop(stream, None)
        if alarm is not None:
            alarm.cancel()
            self._slots.remove(stream)
        self._ends.add(reason)

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
            if self._slots.refuses(name(source)):
                caller.close()
                self._ends.add(CROWDED)
                continue
            victim = self._slots.victim()
            if victim is not None:
                victim.drop(CROWDED)
            stream = Stream(caller, self._way.answer(), self._way.framing, self, self._loop, self._limits, called=True)
            self._strangers[stream] = self._loop.call_later(self._limits.handshake_s, stream.drop, LATE)
            self._slots.add(stream, name(source))
            stream.start()

    def _rest(self, bound: socket.socket) -> None:
        """The system has no sockets to give: leave callers waiting there, rather than ask all the time."""
        self._ends.add(EXHAUSTED)
        self._loop.remove_reader(bound)
        self._loop.call_later(REST_S, self._again, bound)

    def _again(self, bound: socket.socket) -> None:
        if bound in self._listeners:
            self._loop.add_reader(bound, self._accept, bound)


def _ask_for_sockets(count: int) -> None:
    """What a process is given at first is often 1,024, far less than it may have."""
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if most == resource.RLIM_INFINITY else min(count, most)
    if given != resource.RLIM_INFINITY and given < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def listening(family: socket.AddressFamily, address: SocketAddress) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # Who is started again need not wait until the system has forgotten its old streams.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Each family has its own socket, as with UDP.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise unusable("listen", address, error) from error
    return bound


ACCEPTS: Final = 64
"""Connections taken at a time, so that timers hardly wait."""
BACKLOG: Final = 256
OTHERS: Final = 128
"""Files and sockets that a process has besides."""
REST_S: Final = 1.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
