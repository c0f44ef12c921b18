"""Drives one machine over TLS streams: `callers` come to us, `calls` are ours, and here are the peers that are up.

Who a peer is comes from below. Who calls us is named by its certificate, so it has the same name whenever it comes, and
one stream at a time: a new one takes the place of the old, which may be dead without anybody having noticed. Who is
called is named by the address that was asked for. `Connect` stands until `Disconnect`: every call that fails and every
stream that ends is told as `peer_lost`, and another call follows by itself.

Nobody waits for a peer that reads slowly: what gathers for it is limited, and past the limit its stream ends, as it
does when nothing is read for a while. But who reads as fast as it can may be slower than a machine writes. So when much
has gathered for a peer, the machine is asked for nothing more for a moment, or until that peer has caught up.

Why a stream ended is counted and logged, and never said on the wire. Certificates are looked at again from time to time
for as long as a stream stands: a membership ends, and a revocation may come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import NamedTuple

from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Listen, Machine
from veilcast.net.callers import Callers
from veilcast.net.calls import Calls
from veilcast.net.clock import Clock
from veilcast.net.ends import FAULT, FULL, REPLACED, SLOW, Ends
from veilcast.net.limits import Limits
from veilcast.net.records import WELCOME
from veilcast.net.stream import Stream
from veilcast.net.tls import Guest, Identity
from veilcast.net.turns import Counts, Turns


class PeerState(NamedTuple):
    """For whoever asks how the peers are: since when it is up, or away; and if away, the reason."""

    peer: Address
    up: bool
    since_us: int
    reason: str


class RecordCounts(Counts):
    unit = "records"


class StreamDriver(Turns):
    """One machine on TLS streams: `stream.Ears` of those that are up. With nowhere to listen, it only calls."""

    counts: RecordCounts

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
        self.counts = RecordCounts()
        self._limits = limits = limits or Limits()
        self._ends = Ends(self.now)
        self.reasons = self._ends.counts
        """Why streams, handshakes and calls ended, and how often."""
        self._callers = Callers(listen, identity, limits, self.now, self._ends, self._let_in)
        self._calls = Calls(
            identity, limits, rng or SystemRandom(), self.now, self._ends, self._answered, self._unanswered
        )
        self._up: dict[Address, _Up] = {}
        self._names: dict[Stream, Address] = {}
        self._behind: dict[Stream, int] = {}
        """Streams with bytes that wait, and how much each had sent when it was looked at last."""
        self._awaited: Stream | None = None
        """The one that the machine has to wait for."""
        self._patience: asyncio.TimerHandle | None = None
        self._slow: dict[Stream, None] = {}
        """Those that were waited for in vain."""
        self._caught_up = asyncio.Event()
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
        while self._behind:
            self._caught_up.clear()
            await self._caught_up.wait()

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
        if sum(stream.unsent for stream in self._behind) > self._limits.waiting_max:
            max(self._behind, key=lambda stream: stream.unsent).drop(SLOW)

    def _room(self) -> int:
        return self._limits.room if self._awaited is None else 0

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
            self._behind.setdefault(stream, stream.sent)
            if stream.unsent > self._limits.high_water and self._awaited is None and stream not in self._slow:
                self._awaited, self._patience = (
                    stream,
                    self._loop.call_later(self._limits.patience_s, self._wait_no_longer),
                )

    def _wait_no_longer(self) -> None:
        assert self._awaited is not None
        self._slow[self._awaited] = None
        self._awaited = None
        self.touch()

    # --- peers come and go ------------------------------------------------------------------------------------

    def _let_in(self, stream: Stream, guest: Guest) -> None:
        before = self._up.get(guest.name)
        if before is not None:
            before.stream.drop(REPLACED)
        elif sum(other.called for other in self._names) >= self._limits.callers:
            stream.drop(FULL)
            return
        self._set_up(guest.name, stream, guest)
        stream.send(WELCOME)
        self._flush(stream)

    def _answered(self, peer: Address, stream: Stream, guest: Guest) -> None:
        self._set_up(peer, stream, guest)

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
        self.calm(stream)

    # --- what streams say -------------------------------------------------------------------------------------

    def shaken(self, stream: Stream, certificate: bytes) -> None:
        raise AssertionError("a stream that is up has been through its handshake")

    def heard(self, stream: Stream, records: list[bytes]) -> None:
        peer, now, taken = self._names[stream], self.now(), 0
        try:
            for record in records:
                taken += 1
                self._machine.receive(record, peer, now)
        except BaseException:
            # The rest is lost; so is the stream, then, and what must arrive is repeated on the next.
            stream.drop(FAULT)
            raise
        finally:
            self.counts.received += taken
            self._turn(now)

    def calm(self, stream: Stream) -> None:
        self._behind.pop(stream, None)
        self._slow.pop(stream, None)
        if stream is self._awaited and self._patience is not None:
            self._patience.cancel()
            self._awaited = None
            self.touch()
        self._caught_up.set()

    def ended(self, stream: Stream, reason: str) -> None:
        peer = self._names[stream]
        self._take_down(peer)
        self._ends.add(reason)
        self._calls.again(peer, reason)
        self._notice("peer_lost", peer, self.now())
        self.touch()

    def _look_again(self) -> None:
        """At the streams that should have moved, and at the certificates of all who are here."""
        now = self.now()
        for stream, before in list(self._behind.items()):
            if stream.sent == before:
                stream.drop(SLOW)
            else:
                self._behind[stream] = stream.sent
        for up in list(self._up.values()):
            try:
                up.guest.check(now)
            except RemoteError as error:
                up.stream.drop(str(error))
        self._review = self._loop.call_later(self._limits.review_s, self._look_again)


class _Up(NamedTuple):
    stream: Stream
    guest: Guest
    since_us: int
