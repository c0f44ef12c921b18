"""Outbound streams: the peers that the machine wants, each dialled until it answers.

A peer has answered when its welcome arrives: an empty record that says that the peer has accepted us. In TLS 1.3 the
caller's handshake reasons before the peer has judged the caller's certificate, so the end of the handshake is not
enough. A frame format without a welcome (`FrameFormat.has_welcome`) counts the end of the handshake as the answer.

After a failed call, or the end of a stream, the driver dials again after a pause. The pause doubles with every failure
and is shortened by a random factor, so that peers that lost the same host do not all return at one moment.

A peer may have a host name in place of a numeric address (only MQTT brokers have). The name is looked up for each call,
in a thread of its own, because an address may move; after a failure the next of its addresses is called.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, NamedTuple

from veilcast.errors import ConfigError, RemoteError
from veilcast.machine import Address
from veilcast.net.address import SocketAddress
from veilcast.net.close_reasons import CLOSED, LATE, REFUSED, UNREACHABLE, UNWELCOME, CloseReasons
from veilcast.net.records import WELCOME
from veilcast.net.stream import FrameStream
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import DialTarget, PeerIdentity, StreamSetup


class MissingPeer(NamedTuple):
    """A wanted peer that is not connected: since when, and why the last call or stream ended."""

    peer: Address
    since_us: int
    reason: str


class _OutboundPeer:
    """The state of one wanted peer."""

    __slots__ = ("failures", "identity", "reason", "since_us", "stream", "timer")

    def __init__(self, now: int) -> None:
        self.stream: FrameStream | None = None
        """The stream of a call that is under way."""
        self.identity: PeerIdentity | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Timer of the next call, or of the deadline of this one; None while the peer is connected."""
        self.since_us = now
        """Time of the last connect or disconnect, in microseconds."""
        self.failures = 0
        self.reason = ""


class OutboundStreams:
    """All wanted peers, and the callbacks of the calls that are under way."""

    def __init__(
        self,
        setup: StreamSetup,
        limits: StreamLimits,
        rng: Random,
        now: Callable[[], int],
        reasons: CloseReasons,
        answered: Callable[[Address, FrameStream, PeerIdentity], None],
        lost: Callable[[Address], None],
    ) -> None:
        """`answered` takes over a stream and reports its end to `redial_later`. `lost` is called for each failed
        call."""
        self._setup, self._limits, self._rng, self._now, self._reasons = setup, limits, rng, now, reasons
        self._answered, self._lost = answered, lost
        self._calls: dict[Address, _OutboundPeer] = {}
        self._under_way: dict[FrameStream, Address] = {}

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        for peer in list(self._calls):
            self.forget(peer)

    def missing_peers(self) -> list[MissingPeer]:
        return [
            MissingPeer(peer, call.since_us, call.reason)
            for peer, call in self._calls.items()
            if call.timer is not None
        ]

    def want(self, peer: Address) -> None:
        """Keep a connection to this peer until `forget`."""
        if peer in self._calls:
            return  # It is here, or is being called, or will be in its time.
        if len(self._calls) >= self._limits.calls:
            self._lost(peer)
            return
        self._calls[peer] = _OutboundPeer(self._now())
        self._dial(peer)

    def forget(self, peer: Address) -> None:
        call = self._calls.pop(peer, None)
        if call is None:
            return
        if call.timer is not None:
            call.timer.cancel()
        if call.stream is not None:
            del self._under_way[call.stream]
            call.stream.end()

    def redial_later(self, peer: Address, reason: str) -> None:
        """Call the peer again after a pause: its stream has ended, or a call has failed."""
        call = self._calls.get(peer)
        if call is None:
            return
        now = self._now()
        if call.timer is not None:
            call.timer.cancel()
        else:
            # It was here. If for longer than it would now be waited for, all is as at the beginning.
            if now - call.since_us >= self._pause_s(call) * 1_000_000:
                call.failures = 0
            call.since_us = now
        call.stream, call.reason = None, reason
        # Peers that lost the same host at one moment do not all return at one moment.
        pause_s = self._pause_s(call) * self._rng.uniform(0.5, 1)
        call.failures += 1
        call.timer = self._loop.call_later(pause_s, self._dial, peer)

    def handshake_done(self, stream: FrameStream, certificate: bytes) -> None:
        try:
            identity = self._setup.identify_callee(certificate, self._under_way[stream])
            identity.check(self._now())
        except RemoteError as error:
            stream.drop(str(error))
            return
        self._calls[self._under_way[stream]].identity = identity
        if not self._setup.frame_format.has_welcome:
            self._hand_over(stream)

    def frames_received(self, stream: FrameStream, records: list[bytes]) -> None:
        if records.pop(0) != WELCOME:
            stream.drop(UNWELCOME)
            return
        self._hand_over(stream)
        if records:
            stream.callbacks.frames_received(stream, records)

    def drained(self, stream: FrameStream) -> None:
        """Ignored: a handshake has no backlog."""

    def stream_ended(self, stream: FrameStream, reason: str) -> None:
        peer = self._under_way.pop(stream)
        self._failed(peer, REFUSED if reason == CLOSED else reason)

    def _hand_over(self, stream: FrameStream) -> None:
        peer = self._under_way.pop(stream)
        call = self._calls[peer]
        if call.timer is not None:
            call.timer.cancel()
        assert call.identity is not None
        identity, call.stream, call.identity, call.timer = call.identity, None, None, None
        call.since_us, call.reason = self._now(), ""
        self._answered(peer, stream, identity)

    def _dial(self, peer: Address) -> None:
        call = self._calls[peer]
        try:
            target = self._setup.dial(peer)
        except ConfigError:
            self._failed(peer, UNREACHABLE)
            return
        if target.family != socket.AF_UNSPEC:
            self._connect(peer, target)
            return
        # Whichever comes first: a late answer finds another timer, and is dropped.
        call.timer = timer = self._loop.call_later(self._limits.handshake_s, self._failed, peer, UNREACHABLE)
        look_up_host(self._loop, target.address, partial(self._looked_up, peer, target, timer))

    def _looked_up(
        self, peer: Address, target: DialTarget, timer: asyncio.TimerHandle, found: Sequence[HostAddress]
    ) -> None:
        call = self._calls.get(peer)
        if call is None or call.timer is not timer:
            return
        timer.cancel()
        if found:
            family, address = found[call.failures % len(found)]
            self._connect(peer, target._replace(family=family, address=address))
        else:
            self._failed(peer, UNREACHABLE)

    def _connect(self, peer: Address, target: DialTarget) -> None:
        call = self._calls[peer]
        family, address, wrap = target
        try:
            dialled = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            self._failed(peer, UNREACHABLE)
            return
        call.stream = stream = FrameStream(
            dialled, wrap, self._setup.frame_format, self, self._loop, self._limits, called=False
        )
        call.timer = self._loop.call_later(self._limits.handshake_s, stream.drop, LATE)
        self._under_way[stream] = peer
        try:
            code = dialled.connect_ex(address)
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code in (0, errno.EINPROGRESS):
            stream.start_when_connected()
        else:
            stream.drop(UNREACHABLE)

    def _pause_s(self, call: _OutboundPeer) -> float:
        limits = self._limits
        return min(limits.backoff_s * (1 << min(call.failures, DOUBLINGS)), limits.backoff_max_s)

    def _failed(self, peer: Address, reason: str) -> None:
        self._reasons.add(reason)
        self.redial_later(peer, reason)
        self._lost(peer)


class HostAddress(NamedTuple):
    family: socket.AddressFamily
    address: SocketAddress


def look_up_host(
    loop: asyncio.AbstractEventLoop, name: SocketAddress, done: Callable[[Sequence[HostAddress]], None]
) -> None:
    """Call `done` in the loop with the addresses of a host name and port; with none if there are none.

    A daemon thread does it, because a resolver may take half a minute and a process that ends does not wait for it.
    """

    def work() -> None:
        try:
            rows = socket.getaddrinfo(name[0], name[1], type=socket.SOCK_STREAM)
        except (OSError, ValueError):  # A name that cannot be encoded is a value error.
            rows = []
        found = [HostAddress(row[0], (str(row[4][0]), int(row[4][1]), *row[4][2:])) for row in rows]
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(done, found)

    threading.Thread(target=work, name="look-up", daemon=True).start()


DOUBLINGS: Final = 16
