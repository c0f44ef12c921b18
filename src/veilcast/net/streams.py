"""Drives one machine over TLS streams: listens, calls, and tells the machine whose stream is up.

Who a peer is comes from below. Who calls us is named by its certificate, so it has the same name whenever it comes, and
one stream at a time: a new one takes the place of the old, which may be dead without anybody having noticed. Who is
called is named by the address that was asked for. Up means that both sides agree: whoever was called says so with an
empty record once it has judged the caller, for in TLS 1.3 the caller itself would be done before that.

`Connect` stands until `Disconnect`. A call that fails, or a stream that ends, is told as `peer_lost`, and the next call
follows after a while: twice as long after every failure, and never quite as long as somebody else's.

What strangers can do is limited before they are known: so many handshakes at a time, the oldest gives way to a new one,
and each has a few seconds. What members can do is limited after: length of records, bytes that wait for a slow reader.
Why a stream ended is counted and logged here, and never said on the wire. Certificates are looked at again from time to
time for as long as a stream stands: a membership ends, and a revocation may come.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Final, NamedTuple

from veilcast.errors import ConfigError, RemoteError, StorageError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Machine
from veilcast.net.address import SocketAddress, name, parse
from veilcast.net.clock import Clock
from veilcast.net.log import Plain
from veilcast.net.records import WELCOME
from veilcast.net.stream import CLOSED, SLOW, UNREACHABLE, Stream
from veilcast.net.tls import Guest, Identity, client_context, server_context
from veilcast.net.turns import Counts, Turns


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one driver takes on."""

    record_max: int = 1 << 18
    """Bytes of one record, in either direction."""
    write_max: int = 16 << 20
    """Bytes that wait for one peer to read; who lets more gather is dropped. A machine that may have more under way
    to one peer must hold back by itself."""
    waiting_max: int = 256 << 20
    """Bytes that wait for all of them; past it, the one with the most is dropped."""
    streams: int = 4096
    """Of those who called us."""
    calls: int = 64
    """Peers that we call, or try to."""
    handshakes: int = 256
    """Of strangers, at a time."""
    handshake_s: float = 5.0
    """From the first byte of a call to the last of its handshake."""
    backoff_s: float = 0.25
    """Before the second call of a peer; doubles with every failure."""
    backoff_max_s: float = 30.0
    review_s: float = 10.0
    """How often every certificate is looked at again, and every stream that does not move."""


class StreamCounts(Counts):
    __slots__ = ("accepted", "ended")
    unit = "records"

    def __init__(self) -> None:
        super().__init__()
        self.accepted = 0
        """Connections of strangers, whatever became of them."""
        self.ended: Counter[str] = Counter()
        """Streams, handshakes and calls that ended, by the reason."""

    def numbers(self) -> dict[str, float]:
        ended = self.ended.total()
        return {**super().numbers(), "streams_accepted_total": self.accepted, "streams_ended_total": ended}


class PeerState(NamedTuple):
    """For whoever asks how the peers are. `reason` is why the last stream or call ended, if it did."""

    peer: Address
    up: bool
    since_us: int
    reason: str


class _Call:
    """A peer that the machine wants a way to."""

    __slots__ = ("alarm", "failures", "guest", "reason", "since_us", "stream", "up")

    def __init__(self, now: int) -> None:
        self.stream: Stream | None = None
        self.guest: Guest | None = None
        self.alarm: asyncio.TimerHandle | None = None
        """Of the next call, or of the end of this one's time."""
        self.up = False
        self.since_us = now
        self.failures = 0
        self.reason = ""


class _Visit(NamedTuple):
    """A stream that is up."""

    stream: Stream
    guest: Guest
    since_us: int


class StreamDriver(Turns):
    """One machine on TLS streams. Without anything to listen at, it only calls."""

    counts: StreamCounts

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str],
        identity: Identity,
        act_on: Callable[[Event], object],
        clock: Clock | None = None,
        limits: Limits | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(machine, act_on, clock)
        self.counts = StreamCounts()
        self._limits = limits or Limits()
        self._rng = rng or SystemRandom()
        self._identity = identity
        self._wanted = [parse(text) for text in listen]
        self._for_callers, self._for_hosts = server_context(identity), client_context(identity)
        self._listeners: list[socket.socket] = []
        self._strangers: dict[Stream, asyncio.TimerHandle] = {}
        """Who called and has not been let in yet, the oldest first."""
        self._visits: dict[Address, _Visit] = {}
        self._calls: dict[Address, _Call] = {}
        self._whose: dict[Stream, Address] = {}
        """The names of the peers that we call, and of those who are let in."""
        self._behind: dict[Stream, int] = {}
        """Streams with bytes that wait, and how much they had sent when they were looked at last."""
        self._caught_up = asyncio.Event()
        self._review: asyncio.TimerHandle | None = None
        self._minute = self._logged = 0

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(name(bound.getsockname()) for bound in self._listeners)

    def peers(self) -> list[PeerState]:
        """Those we call, up or not, and those who are here."""
        called = [PeerState(peer, call.up, call.since_us, call.reason) for peer, call in self._calls.items()]
        return called + [PeerState(peer, True, visit.since_us, "") for peer, visit in self._visits.items()]

    def _start(self) -> None:
        for family, address in self._wanted:
            self._listeners.append(_listen(family, address))
        for bound in self._listeners:
            self._loop.add_reader(bound, self._accept, bound)
        self._review = self._loop.call_later(self._limits.review_s, self._look_again)

    def _stop(self) -> None:
        if self._review is not None:
            self._review.cancel()
        for bound in self._listeners:
            self._loop.remove_reader(bound)
            bound.close()
        self._listeners.clear()
        for stream, alarm in self._strangers.items():
            alarm.cancel()
            stream.end()
        self._strangers.clear()
        for visit in self._visits.values():
            visit.stream.end()
        self._visits.clear()
        for peer in list(self._calls):
            self._hang_up(peer)
        self._whose.clear()
        self._behind.clear()

    async def _flushed(self) -> None:
        while self._behind:
            self._caught_up.clear()
            await self._caught_up.wait()

    # --- what the machine says --------------------------------------------------------------------------------

    def _send(self, frames: list[Frame]) -> None:
        touched: dict[Stream, None] = {}
        for frame in frames:
            stream = self._way_to(frame.destination)
            if stream is None or not 0 < len(frame.data) <= self._limits.record_max:
                self.counts.undeliverable += 1
                continue
            stream.send(frame.data)
            touched[stream] = None
            self.counts.sent += 1
        for stream in touched:
            self._flush(stream)

    def _tell(self, event: Event, now: int) -> None:
        if isinstance(event, Connect):
            self._connect(event.peer, now)
        elif isinstance(event, Disconnect):
            self._disconnect(event.peer)
        else:
            self._act_on(event)

    def _way_to(self, peer: Address) -> Stream | None:
        visit = self._visits.get(peer)
        if visit is not None:
            return visit.stream
        call = self._calls.get(peer)
        return call.stream if call is not None and call.up else None

    def _flush(self, stream: Stream) -> None:
        stream.flush()
        if stream.unsent and stream not in self._behind:
            self._behind[stream] = stream.sent
        if self._behind:
            waiting = sum(each.unsent for each in self._behind)
            if waiting > self._limits.waiting_max:
                max(self._behind, key=lambda each: each.unsent).drop(SLOW)

    # --- those who call us ------------------------------------------------------------------------------------

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                caller, _ = bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(bound)
                    return
                continue  # Gone before it was let in.
            self.counts.accepted += 1
            if len(self._strangers) >= self._limits.handshakes:
                next(iter(self._strangers)).drop(CROWDED)
            stream = self._stream(caller, called=True)
            self._strangers[stream] = self._loop.call_later(self._limits.handshake_s, stream.drop, LATE)
            stream.start()

    def _rest(self, bound: socket.socket) -> None:
        """The system has no more sockets to give: leave callers waiting there, rather than ask all the time."""
        self.counts.ended[EXHAUSTED] += 1
        self._loop.remove_reader(bound)

        def again() -> None:
            if bound in self._listeners:
                self._loop.add_reader(bound, self._accept, bound)

        self._loop.call_later(REST_S, again)

    def _let_in(self, stream: Stream, certificate: bytes) -> None:
        now = self.now()
        guest = self._identity.callers(certificate)
        guest.check(now)
        before = self._visits.get(guest.name)
        if before is not None:
            before.stream.drop(REPLACED)
        elif len(self._visits) >= self._limits.streams:
            stream.drop(FULL)
            return
        self._strangers.pop(stream).cancel()
        self._visits[guest.name] = _Visit(stream, guest, now)
        self._whose[stream] = guest.name
        stream.send(WELCOME)
        self._flush(stream)
        self._notice("peer_up", guest.name, now)
        self.touch()

    # --- those whom we call -----------------------------------------------------------------------------------

    def _connect(self, peer: Address, now: int) -> None:
        if peer in self._calls:
            return  # It is up, or under way, or has its time.
        if len(self._calls) >= self._limits.calls:
            self._notice("peer_lost", peer, now)
            return
        self._calls[peer] = _Call(now)
        self._dial(peer)

    def _disconnect(self, peer: Address) -> None:
        self._hang_up(peer)
        visit = self._visits.pop(peer, None)
        if visit is not None:
            self._forget(visit.stream)
            visit.stream.end()

    def _hang_up(self, peer: Address) -> None:
        call = self._calls.pop(peer, None)
        if call is None:
            return
        if call.alarm is not None:
            call.alarm.cancel()
        if call.stream is not None:
            self._forget(call.stream)
            call.stream.end()

    def _dial(self, peer: Address) -> None:
        call = self._calls[peer]
        try:
            family, address = parse(peer)
            dialled = socket.socket(family, socket.SOCK_STREAM)
        except (ConfigError, OSError):
            self._failed(peer, UNREACHABLE)
            return
        call.stream = stream = self._stream(dialled, called=False)
        self._whose[stream] = peer
        call.alarm = self._loop.call_later(self._limits.handshake_s, stream.drop, LATE)
        code = dialled.connect_ex(address)
        if code == 0:
            stream.start()
        elif code == errno.EINPROGRESS:
            stream.start_when_connected()
        else:
            stream.drop(UNREACHABLE)

    def _meet(self, stream: Stream, certificate: bytes) -> None:
        call = self._calls[self._whose[stream]]
        call.guest = self._identity.hosts(certificate)
        call.guest.check(self.now())

    def _welcomed(self, peer: Address, call: _Call) -> None:
        now = self.now()
        if call.alarm is not None:
            call.alarm.cancel()
            call.alarm = None
        call.up, call.since_us, call.reason = True, now, ""
        self._notice("peer_up", peer, now)

    def _failed(self, peer: Address, reason: str) -> None:
        """A call or its stream has ended: tell, and call again after a while."""
        call, now = self._calls[peer], self.now()
        if call.alarm is not None:
            call.alarm.cancel()
        if call.up and now - call.since_us >= self._limits.backoff_max_s * 1e6:
            call.failures = 0
        if call.up or not call.reason:
            call.since_us = now
        call.stream, call.up, call.reason = None, False, reason
        pause = min(self._limits.backoff_s * 2 ** min(call.failures, 30), self._limits.backoff_max_s)
        call.failures += 1
        # Between half of it and all: those who lost the same host at once do not come back at once.
        call.alarm = self._loop.call_later(pause * self._rng.uniform(0.5, 1), self._dial, peer)
        self._notice("peer_lost", peer, now)
        self.touch()

    # --- what streams say: `stream.Ears` ----------------------------------------------------------------------

    def shaken(self, stream: Stream, certificate: bytes) -> None:
        try:
            if stream.called:
                self._let_in(stream, certificate)
            else:
                self._meet(stream, certificate)
        except RemoteError as error:
            stream.drop(str(error))

    def heard(self, stream: Stream, records: list[bytes]) -> None:
        peer = self._whose[stream]
        call = self._calls.get(peer)
        if call is not None and not call.up:
            if records.pop(0) != WELCOME:
                stream.drop(UNWELCOME)
                return
            self._welcomed(peer, call)
        now = self.now()
        taken = 0
        try:
            for record in records:
                taken += 1
                self._machine.receive(record, peer, now)
        except BaseException:
            # The rest of it is lost. What must arrive is repeated, when a new stream stands.
            stream.drop(FAULT)
            raise
        finally:
            self.counts.received += taken
            self._turn(now)

    def calm(self, stream: Stream) -> None:
        self._behind.pop(stream, None)
        self._caught_up.set()

    def ended(self, stream: Stream, reason: str) -> None:
        peer = self._whose.get(stream)
        self._forget(stream)
        alarm = self._strangers.pop(stream, None)
        if alarm is not None:
            alarm.cancel()
        call = self._calls.get(peer) if peer is not None else None
        if call is not None and not call.up and reason == CLOSED:
            reason = REFUSED
        self.counts.ended[reason] += 1
        self._log(reason)
        if peer is None:
            return
        if call is not None:
            self._failed(peer, reason)
        elif self._visits.pop(peer, None) is not None:
            self._notice("peer_lost", peer, self.now())
            self.touch()

    # --- and the rest -----------------------------------------------------------------------------------------

    def _stream(self, bound: socket.socket, *, called: bool) -> Stream:
        bound.setblocking(False)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Stream(
            bound,
            self._for_callers if called else self._for_hosts,
            self,
            self._loop,
            called=called,
            record_max=self._limits.record_max,
            write_max=self._limits.write_max,
        )

    def _forget(self, stream: Stream) -> None:
        self._whose.pop(stream, None)
        self.calm(stream)

    def _look_again(self) -> None:
        """At the certificate of everybody who is here, and at the streams that should have moved."""
        now = self.now()
        for stream, before in list(self._behind.items()):
            if stream.sent == before:
                stream.drop(SLOW)
            else:
                self._behind[stream] = stream.sent
        guests = [(visit.stream, visit.guest) for visit in self._visits.values()]
        guests += [(call.stream, call.guest) for call in self._calls.values() if call.stream and call.guest]
        for stream, guest in guests:
            try:
                guest.check(now)
            except RemoteError as error:
                stream.drop(str(error))
        self._review = self._loop.call_later(self._limits.review_s, self._look_again)

    def _log(self, reason: str) -> None:
        """The reasons are ours, and tell nothing of anybody. Strangers can cause any number, so few are written."""
        minute = int(self._loop.time() // 60)
        if minute != self._minute:
            self._minute, self._logged = minute, 0
        self._logged += 1
        if self._logged <= LOGGED:
            _LOG.info("a stream ended: %s", Plain(reason))


def _listen(family: socket.AddressFamily, address: SocketAddress) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        # A server that is started again need not wait until its old connections are forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise StorageError(f"listen: cannot use {name(address)}: {error.strerror}") from error
    return bound


ACCEPTS: Final = 64
"""Connections taken in one turn."""
BACKLOG: Final = 256
REST_S: Final = 1.0
LOGGED: Final = 20
"""Lines a minute."""

LATE: Final = "it took too long"
CROWDED: Final = "too many others wanted in"
FULL: Final = "there is no room for more streams"
REPLACED: Final = "it came anew"
REFUSED: Final = "it does not let us in"
UNWELCOME: Final = "it began without a welcome"
FAULT: Final = "a fault of our own"
EXHAUSTED: Final = "the system has no sockets left"
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG: Final = logging.getLogger("veilcast.streams")
