"""Drives one machine over streams: `inbound` accepts them, `outbound` dials them, and this module has the connected
peers.

The stream setup says who a peer is. On TLS, an inbound peer is named by its certificate, so it has the same name on
every connection and one stream at a time: a new stream replaces the old one, which may be dead without notice. An
outbound peer is named by the address that was dialled. `Connect` stands until `Disconnect`: every failed call and every
ended stream is reported as `peer_lost`, and the driver dials again by itself.

The reason why a stream ended is counted and logged, and never sent. Certificates of connected peers are checked again
from time to time, because a membership ends and a revocation may arrive.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import NamedTuple, Required, TypedDict, Unpack

from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Listen, Machine
from veilcast.net.clock import SystemClock
from veilcast.net.close_reasons import FULL, REPLACED, CloseReasons
from veilcast.net.driver import MachineDriver, TrafficCounts
from veilcast.net.inbound import InboundStreams
from veilcast.net.outbound import OutboundStreams
from veilcast.net.records import WELCOME
from veilcast.net.send_backlog import SendBacklog
from veilcast.net.stream import FrameStream
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import PeerIdentity, StreamSetup
from veilcast.net.tls import StreamIdentity, TlsSetup


class PeerState(NamedTuple):
    """One peer: since when it is connected or away, and why it is away."""

    peer: Address
    up: bool
    since_us: int
    reason: str


class RecordCounts(TrafficCounts):
    unit = "records"


class DriverOptions(TypedDict, total=False):
    """What every driver of streams may be given, whatever carries its streams."""

    act_on: Required[Callable[[Event], object]]
    clock: SystemClock | None
    limits: StreamLimits | None
    rng: Random | None


class BaseStreamDriver(MachineDriver):
    """Drives one machine on streams; the callbacks of the connected ones. Without a listening address, it only
    dials."""

    counts: RecordCounts

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str | socket.socket],
        setup: StreamSetup,
        act_on: Callable[[Event], object],
        clock: SystemClock | None = None,
        limits: StreamLimits | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(machine, act_on, clock)
        self.counts = RecordCounts()
        self._limits = limits = limits or StreamLimits()
        self._reasons = CloseReasons(self.now)
        self.reasons = self._reasons.counts
        """How many streams, handshakes and calls ended, by reason."""
        self._inbound = InboundStreams(listen, setup, limits, self.now, self._reasons, self._let_in)
        self._outbound = OutboundStreams(
            setup, limits, rng or SystemRandom(), self.now, self._reasons, self._set_up, self._call_failed
        )
        self._up: dict[Address, _UpPeer] = {}
        self._names: dict[FrameStream, Address] = {}
        self._backlog = SendBacklog(limits, self.touch)
        self._inbound_count = 0
        """The number of connected inbound peers."""
        self._review: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self._inbound.addresses

    def numbers(self) -> dict[str, float]:
        return {
            **super().numbers(),
            "streams_up": len(self._up),
            "streams_accepted_total": self._inbound.accepted,
            "streams_ended_total": self.reasons.total(),
        }

    def peers(self) -> list[PeerState]:
        here = [PeerState(peer, True, up.since_us, "") for peer, up in self._up.items()]
        return here + [
            PeerState(peer, False, since_us, reason) for peer, since_us, reason in self._outbound.missing_peers()
        ]

    def _start(self) -> None:
        self._inbound.open(self._loop)
        self._outbound.open(self._loop)
        self._review = self._loop.call_later(self._limits.review_s, self._run_review)

    def _stop(self) -> None:
        if self._review is not None:
            self._review.cancel()
        self._inbound.close()
        self._outbound.close()
        for up in self._up.values():
            up.stream.end()
        self._up.clear()
        for stream in list(self._names):
            self._forget(stream)

    async def _wait_flushed(self) -> None:
        await self._backlog.wait_empty()

    # --- frames and events ------------------------------------------------------------------------------------

    def _send(self, frames: list[Frame]) -> None:
        touched: dict[FrameStream, None] = {}
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
        self._backlog.drop_longest()

    def _frames_allowed(self) -> int:
        return 0 if self._backlog.must_wait else self._limits.frames_per_turn

    def _handle_event(self, event: Event, now: int) -> None:
        if isinstance(event, Connect):
            self._outbound.want(event.peer)
        elif isinstance(event, Disconnect):
            self._outbound.forget(event.peer)
            if event.peer in self._up:
                self._take_down(event.peer).end()
        elif not isinstance(event, Listen):  # The driver listens at its addresses from the start.
            self._act_on(event)

    def _flush(self, stream: FrameStream) -> None:
        stream.flush()
        if stream.unsent and stream in self._names:
            self._backlog.add(stream)

    # --- connected peers --------------------------------------------------------------------------------------

    def _let_in(self, stream: FrameStream, peer_identity: PeerIdentity) -> None:
        before = self._up.get(peer_identity.name)
        if before is not None:
            before.stream.drop(REPLACED)
        elif self._inbound_count >= self._limits.callers and not self._make_room():
            stream.drop(FULL)
            return
        self._inbound_count += 1
        self._set_up(peer_identity.name, stream, peer_identity)
        stream.send(WELCOME)
        self._flush(stream)

    def _make_room(self) -> bool:
        """Make room for one more inbound peer. Returns False if that is not possible."""
        return False

    def _call_failed(self, peer: Address) -> None:
        self._notice("peer_lost", peer, self.now())
        self.touch()

    def _set_up(self, peer: Address, stream: FrameStream, peer_identity: PeerIdentity) -> None:
        now = self.now()
        stream.callbacks = self
        self._up[peer] = _UpPeer(stream, peer_identity, now)
        self._names[stream] = peer
        self._notice("peer_up", peer, now)
        self.touch()

    def _take_down(self, peer: Address) -> FrameStream:
        stream = self._up.pop(peer).stream
        self._forget(stream)
        return stream

    def _forget(self, stream: FrameStream) -> None:
        del self._names[stream]
        self._inbound_count -= stream.is_inbound
        self._backlog.remove(stream)

    # --- stream callbacks -------------------------------------------------------------------------------------

    def handshake_done(self, stream: FrameStream, certificate: bytes) -> None:
        raise AssertionError("a stream that is up has been through its handshake")

    def frames_received(self, stream: FrameStream, records: list[bytes]) -> None:
        peer, now = self._names[stream], self.now()
        self.counts.received += len(records)
        for record in records:
            # The stream stays: a record that was lost with it would come again on the next, and raise again.
            self.faults.contain(self._machine.receive, record, peer, now)
        self._turn(now)

    def drained(self, stream: FrameStream) -> None:
        self._backlog.remove(stream)

    def stream_ended(self, stream: FrameStream, reason: str) -> None:
        peer = self._names[stream]
        self._take_down(peer)
        self._reasons.add(reason)
        self._outbound.redial_later(peer, reason)
        self._notice("peer_lost", peer, self.now())
        self.touch()

    def _run_review(self) -> None:
        """Review: disconnect stalled streams, and check the certificates of all connected peers."""
        self._backlog.drop_stalled()
        now = self.now()
        for up in list(self._up.values()):
            try:
                up.peer_identity.check(now)
            except RemoteError as error:
                up.stream.drop(str(error))
        self._review = self._loop.call_later(self._limits.review_s, self._run_review)


class TlsStreamDriver(BaseStreamDriver):
    """Drives one machine on TLS streams."""

    def __init__(
        self,
        machine: Machine,
        *,
        listen: Sequence[str],
        identity: StreamIdentity,
        **options: Unpack[DriverOptions],
    ) -> None:
        super().__init__(machine, listen=listen, setup=TlsSetup(identity), **options)


class _UpPeer(NamedTuple):
    stream: FrameStream
    peer_identity: PeerIdentity
    since_us: int
