"""Drives one machine over streams: `callers` come to us, `calls` are ours, and here are the peers that are up.

Who a peer is comes from below. On TLS, who calls us is named by its certificate, so it has the same name whenever it
comes, and one stream at a time: a new one takes the place of the old, which may be dead without anybody having noticed.
Who is called is named by the address that was asked for. `Connect` stands until `Disconnect`: every call that fails and
every stream that ends is told as `peer_lost`, and another call follows by itself.

Why a stream ended is counted and logged, and never said on the wire. Certificates are looked at again from time to time
for as long as a stream stands: a membership ends, and a revocation may come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import NamedTuple

from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Listen, Machine
from veilcast.net.backlog import Backlog
from veilcast.net.callers import Callers
from veilcast.net.calls import Calls
from veilcast.net.clock import Clock
from veilcast.net.ends import FULL, REPLACED, Ends
from veilcast.net.limits import Limits
from veilcast.net.records import WELCOME
from veilcast.net.stream import Stream
from veilcast.net.tls import Identity, TlsWay
from veilcast.net.turns import Counts, Turns
from veilcast.net.wrap import Guest, Way


class PeerState(NamedTuple):
    """For whoever asks how the peers are: since when it is up, or away; and if away, the reason."""

    peer: Address
    up: bool
    since_us: int
    reason: str


class RecordCounts(Counts):
    unit = "records"


class Streams(Turns):
    """One machine on streams: `stream.Ears` of those that are up. With nowhere to listen, it only calls."""

    counts: RecordCounts

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str | socket.socket],
        way: Way,
        act_on: Callable[[Event], object],
        clock: Clock | None = None,
        limits: Limits | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(machine, act_on, clock)
        self.counts = RecordCounts()
        self._limits = limits = limits or Limits()
        self._ends = Ends(self.now)
        self.reasons = self._ends.counts
        """Why streams, handshakes and calls ended, and how often."""
        self._callers = Callers(listen, way, limits, self.now, self._ends, self._let_in)
        self._calls = Calls(way, limits, rng or SystemRandom(), self.now, self._ends, self._set_up, self._unanswered)
        self._up: dict[Address, _Up] = {}
        self._names: dict[Stream, Address] = {}
        self._backlog = Backlog(limits, self.touch)
        self._guests = 0
        """How many of them called us."""
        self._review: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self._callers.addresses

    def numbers(self) -> dict[str, float]:
        return {
            **super().numbers(),
            "streams_up": len(self._up),
            "streams_accepted_total": self._callers.accepted,
            "streams_ended_total": self.reasons.total(),
        }

    def peers(self) -> list[PeerState]:
        here = [PeerState(peer, True, up.since_us, "") for peer, up in self._up.items()]
        return here + [PeerState(peer, False, since_us, reason) for peer, since_us, reason in self._calls.missing()]

    def _start(self) -> None:
        self._callers.open(self._loop)
        self._calls.open(self._loop)
        self._review = self._loop.call_later(self._limits.review_s, self._look_again)

    def _stop(self) -> None:
        if self._review is not None:
            self._review.cancel()
        self._callers.close()
        self._calls.close()
        for up in self._up.values():
            up.stream.end()
        self._up.clear()
        for stream in list(self._names):
            self._forget(stream)

    async def _flushed(self) -> None:
        await self._backlog.gone()

    # --- what the machine says --------------------------------------------------------------------------------

    def _send(self, frames: list[Frame]) -> None:
        touched: dict[Stream, None] = {}
        for frame in frames:
            up = self._up.get(frame.destination)
            if up is None or not 0 < len(frame.data) <= self._limits.record_max:
                self.counts.undeliverable += 1
                continue
            up.stream.send(frame.data)
            touched[up.stream] = None
            self.counts.sent += 1
        for stream in touched:
            self._flush(stream)
        self._backlog.shorten()

    def _room(self) -> int:
        return 0 if self._backlog.must_wait else self._limits.room

    def _tell(self, event: Event, now: int) -> None:
        if isinstance(event, Connect):
            self._calls.want(event.peer)
        elif isinstance(event, Disconnect):
            self._calls.forget(event.peer)
            if event.peer in self._up:
                self._take_down(event.peer).end()
        elif not isinstance(event, Listen):  # We listen where we were told to, from the start.
            self._act_on(event)

    def _flush(self, stream: Stream) -> None:
        stream.flush()
        if stream.unsent and stream in self._names:
            self._backlog.add(stream)

    # --- peers come and go ------------------------------------------------------------------------------------

    def _let_in(self, stream: Stream, guest: Guest) -> None:
        before = self._up.get(guest.name)
        if before is not None:
            before.stream.drop(REPLACED)
        elif self._guests >= self._limits.callers and not self._make_room():
            stream.drop(FULL)
            return
        self._guests += 1
        self._set_up(guest.name, stream, guest)
        stream.send(WELCOME)
        self._flush(stream)

    def _make_room(self) -> bool:
        """For one more caller; whether there is room now."""
        return False

    def _unanswered(self, peer: Address) -> None:
        self._notice("peer_lost", peer, self.now())
        self.touch()

    def _set_up(self, peer: Address, stream: Stream, guest: Guest) -> None:
        now = self.now()
        stream.ears = self
        self._up[peer] = _Up(stream, guest, now)
        self._names[stream] = peer
        self._notice("peer_up", peer, now)
        self.touch()

    def _take_down(self, peer: Address) -> Stream:
        stream = self._up.pop(peer).stream
        self._forget(stream)
        return stream

    def _forget(self, stream: Stream) -> None:
        del self._names[stream]
        self._guests -= stream.called
        self._backlog.remove(stream)

    # --- what streams say -------------------------------------------------------------------------------------

    def shaken(self, stream: Stream, certificate: bytes) -> None:
        raise AssertionError("a stream that is up has been through its handshake")

    def heard(self, stream: Stream, records: list[bytes]) -> None:
        peer, now = self._names[stream], self.now()
        self.counts.received += len(records)
        for record in records:
            # The stream stays: a record that was lost with it would come again on the next, and raise again.
            self.faults.contain(self._machine.receive, record, peer, now)
        self._turn(now)

    def calm(self, stream: Stream) -> None:
        self._backlog.remove(stream)

    def ended(self, stream: Stream, reason: str) -> None:
        peer = self._names[stream]
        self._take_down(peer)
        self._ends.add(reason)
        self._calls.again(peer, reason)
        self._notice("peer_lost", peer, self.now())
        self.touch()

    def _look_again(self) -> None:
        """At the streams that should have moved, and at the certificates of all who are here."""
        self._backlog.look()
        now = self.now()
        for up in list(self._up.values()):
            try:
                up.guest.check(now)
            except RemoteError as error:
                up.stream.drop(str(error))
        self._review = self._loop.call_later(self._limits.review_s, self._look_again)


class StreamDriver(Streams):
    """One machine on TLS streams."""

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
        super().__init__(
            machine, listen=listen, way=TlsWay(identity), act_on=act_on, clock=clock, limits=limits, rng=rng
        )


class _Up(NamedTuple):
    stream: Stream
    guest: Guest
    since_us: int
