"""The ordered inbox: each notification to the application once, in its publisher's order, and again until it
acknowledges.

A notification that arrives out of order waits for the earlier ones, but not forever: after `gap_us` the gap is skipped.
An unacknowledged notification is delivered again every `again_us`, with the same id. All tables are bounded. A number
that was received before is ignored, whatever notification it comes with, so no recording is delivered twice.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from veilcast.link.replay_window import ReplayWindow
from veilcast.machine import Delivered, Note

PublisherStream: TypeAlias = tuple[str, bytes]
"""A topic, and the stream of one of its publishers."""


class OrderedInbox:
    """The inbox of one node. Readers are subscription numbers."""

    def __init__(self, *, unread_max: int, streams_max: int, again_us: int, gap_us: int) -> None:
        self._unread_max, self._streams_max = unread_max, streams_max
        self._again_us, self._gap_us = again_us, gap_us
        self._unread: dict[bytes, tuple[int, tuple[Delivered, ...]]] = {}
        self._next: dict[PublisherStream, int] = {}
        self._windows: dict[PublisherStream, ReplayWindow] = {}
        self._early: dict[PublisherStream, dict[int, tuple[int, tuple[Delivered, ...]]]] = {}
        self._waiting = 0
        """Notifications in all of `_early`."""
        self._ready: deque[Delivered] = deque(maxlen=unread_max)

    def put(self, stream: PublisherStream, number: int, note: Note, readers: list[int], now: int) -> None:
        """Add a notification for these readers. Without readers, only its number counts."""
        deliveries = tuple(Delivered(reader, note) for reader in readers)
        expected = self._next.get(stream)
        if expected is None:
            # A stream begins with its first received notification: a late subscriber misses the earlier ones.
            if len(self._next) >= self._streams_max:
                oldest = next(iter(self._next))
                del self._next[oldest], self._windows[oldest]
                self._waiting -= len(self._early.pop(oldest, ()))
            self._next[stream] = expected = number
            self._windows[stream] = ReplayWindow()
        if not self._windows[stream].take(number):
            return
        if number < expected:
            self._deliver(deliveries, now)  # Its gap was skipped: late is better than never.
            return
        self._early.setdefault(stream, {})[number] = (now + self._gap_us, deliveries)
        self._waiting += 1
        self._release(stream, now)
        if self._waiting > self._unread_max:
            # A publisher may have any number of streams. They share the room, and the largest is released early.
            greediest = max(self._early, key=lambda name: len(self._early[name]))
            self._next[greediest] = min(self._early[greediest])
            self._release(greediest, now)

    def acknowledge(self, note: bytes) -> None:
        self._unread.pop(note, None)

    def next_delivery(self) -> Delivered | None:
        return self._ready.popleft() if self._ready else None

    def beat(self, now: int) -> None:
        """Skip gaps that stayed open too long, and repeat unacknowledged deliveries."""
        for stream, early in list(self._early.items()):
            first = min(early)
            if early[first][0] <= now:
                self._next[stream] = first
                self._release(stream, now)
        for name, (due, deliveries) in list(self._unread.items()):
            if due <= now:
                self._unread[name] = (now + self._again_us, deliveries)
                self._ready.extend(deliveries)

    def size(self) -> int:
        return len(self._unread) + self._waiting

    def _release(self, stream: PublisherStream, now: int) -> None:
        """Deliver the notifications that are next in order."""
        early = self._early[stream]
        while self._next[stream] in early:
            self._deliver(early.pop(self._next[stream])[1], now)
            self._waiting -= 1
            self._next[stream] += 1
        if not early:
            del self._early[stream]

    def _deliver(self, deliveries: tuple[Delivered, ...], now: int) -> None:
        if not deliveries:
            return
        if len(self._unread) >= self._unread_max:
            del self._unread[next(iter(self._unread))]
        self._unread[deliveries[0].note.id] = (now + self._again_us, deliveries)
        self._ready.extend(deliveries)
