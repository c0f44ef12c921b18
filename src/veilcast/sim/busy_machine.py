"""A machine on a host with limited processing time: received and sent frames wait for their turn.

In the simulator, work takes no time, and a server answers a thousand clients at once. This wrapper is for measuring how
long clients wait for one another. Each received frame and each sent frame occupies the host for a while. There is one
queue before the machine, one after it, and one processor for both. Frames are received in their order of arrival, and
all frames that follow from one are sent before the next one is received.

The caller gives the cost of a frame, for example as measured on real machines. Timers and notices cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from veilcast.machine import Address, Durable, Event, Frame, Machine, Peers

FrameCost: TypeAlias = Callable[[bytes], int]
"""The cost of a frame in microseconds."""


class BusyInner(Machine, Peers, Durable, Protocol):
    """A machine that can be wrapped."""


class BusyMachine:
    """A machine itself; its owner calls the inner machine."""

    def __init__(self, inner: BusyInner, receiving: FrameCost, sending: FrameCost) -> None:
        self.inner = inner
        self._receiving, self._sending = receiving, sending
        self._arrived: deque[tuple[bytes, Address]] = deque()
        self._leaving: deque[tuple[int, Frame]] = deque()
        """Frames to send, each with the time at which it is ready."""
        self._ready_us: int | None = None
        """When the first frame in the queue is received; None while the queue is empty."""
        self._free_us = 0

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._arrived.append((data, source))
        self._begin(now)

    def handle_timer(self, now: int) -> None:
        if self._ready_us is not None and self._ready_us <= now:
            self._ready_us = None
            self.inner.receive(*self._arrived.popleft(), now)
        due = self.inner.next_timer()
        if due is not None and due <= now:
            self.inner.handle_timer(now)
        self._gather(now)

    def next_timer(self) -> int | None:
        due = [self.inner.next_timer(), self._ready_us, self._leaving[0][0] if self._leaving else None]
        return min((each for each in due if each is not None), default=None)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        self._gather(now)
        found: list[Frame] = []
        while self._leaving and self._leaving[0][0] <= now and len(found) < limit:
            found.append(self._leaving.popleft()[1])
        return found

    def next_event(self) -> Event | None:
        return self.inner.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self.inner.peer_up(peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.inner.peer_lost(peer, now)

    def stored(self, record: int, now: int) -> None:
        self.inner.stored(record, now)

    def _gather(self, now: int) -> None:
        """Put the inner machine's frames into the queue after it."""
        while frames := self.inner.frames_to_send(now, _AT_ONCE):
            for frame in frames:
                self._free_us = max(self._free_us, now) + self._sending(frame.data)
                self._leaving.append((self._free_us, frame))
        self._begin(now)

    def _begin(self, now: int) -> None:
        if self._ready_us is None and self._arrived:
            self._free_us = max(self._free_us, now) + self._receiving(self._arrived[0][0])
            self._ready_us = self._free_us


_AT_ONCE = 256
