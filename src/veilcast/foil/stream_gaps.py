"""Stream gaps: events of a stream that did not arrive, although the broker was connected all the time.

A broker without space for a slow subscriber's messages drops them silently and stays connected (mosquitto above
`max_queued_messages`). Events of a stream are numbered, and a subscriber to a whole topic receives every candidate of
each: a missing candidate was dropped, and the subscriber asks for repeats as if it had been away. A subscriber to
ranges cannot tell a dropped event from one that does not match.

Missing candidates count whether true or fake: if only the truth were missed, a broker had only to drop one candidate
and see whether a subscriber asks. Therefore heads are believed as they arrive, without a signature. Three limits keep
an adversary from using this. A stream is watched only after a true event of it was opened, and only up to a fixed
number of events beyond the last one. It is watched not from that event on but from the next multiple of ten, so that
dropping the first truth of a stream reveals nothing either. And each request of a stream lengthens the pause to the
next one, up to a quarter of the time for which events are stored.

The end of a stream is missed only when something follows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from veilcast.core.timers import Timers
from veilcast.foil.event import CandidateHead


class StreamKey(NamedTuple):
    period: int
    topic: str
    stream: bytes


class StreamGaps:
    """Bounded: `STREAMS_MAX` streams, and the last `EVENTS_MAX` events of each."""

    def __init__(self, settle_us: int, keep_us: int) -> None:
        self._settle_us, self._keep_us = settle_us, keep_us
        self._streams: dict[StreamKey, _Stream] = {}
        self._timers: Timers[StreamKey] = Timers()

    def __len__(self) -> int:
        return sum(len(each.parts) for each in self._streams.values())

    def opened_truth(self, key: StreamKey, number: int, now: int) -> None:
        """A true event of this stream was opened: the stream exists, and has reached this number."""
        stream = self._streams.get(key)
        if stream is None:
            first = (number // WATCH_FROM_MULTIPLE + 1) * WATCH_FROM_MULTIPLE
            stream = self._streams[key] = _Stream(first, first, now, self._settle_us)
            while len(self._streams) > STREAMS_MAX:
                self._drop(next(iter(self._streams)))
        stream.ceiling = max(stream.ceiling, number + HEADS_AHEAD_MAX)
        if stream.ceiling - stream.floor > EVENTS_MAX:
            stream.advance(stream.ceiling - EVENTS_MAX, now)

    def received(self, key: StreamKey, head: CandidateHead, now: int) -> None:
        """Record a candidate, true or fake."""
        stream = self._streams.get(key)
        if stream is None or not stream.floor <= head.number <= stream.ceiling:
            return
        stream.parts.setdefault(head.number, set()).add(head.slot)
        stream.top = max(stream.top, head.number + 1)
        if len(stream.parts[head.number]) >= head.candidates:
            stream.whole[head.number] = None
        while stream.floor in stream.whole:
            stream.advance(stream.floor + 1, now)
        if stream.floor >= stream.top:
            self._timers.cancel(key)
        elif key not in self._timers:
            self._timers.set(key, max(now + self._settle_us, stream.next_us))

    def due(self, now: int) -> list[tuple[int, int]]:
        """For each stream with missing candidates, its session period, and since when they may be missing."""
        found = []
        for key in self._timers.pop_due(now):
            stream = self._streams[key]
            if now - stream.since_us > self._keep_us:
                stream.advance(stream.top, now)  # No publisher stores it any more.
                continue
            found.append((key.period, stream.since_us))
            stream.pause_us = min(2 * stream.pause_us, max(self._settle_us, self._keep_us // 4))
            stream.next_us = now + stream.pause_us
            self._timers.set(key, stream.next_us)
        return found

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def watch(self, topics: Iterable[str]) -> None:
        """Watch these topics, which are subscribed to as a whole, and no others."""
        kept = set(topics)
        for key in [key for key in self._streams if key.topic not in kept]:
            self._drop(key)

    def end_period(self, period: int) -> None:
        for key in [key for key in self._streams if key.period == period]:
            self._drop(key)

    def _drop(self, key: StreamKey) -> None:
        del self._streams[key]
        self._timers.cancel(key)


@dataclass(slots=True)
class _Stream:
    floor: int
    """All earlier events have arrived, or are not waited for."""
    top: int
    """No event from here on is known."""
    since_us: int
    """When all events before the floor had arrived."""
    pause_us: int
    ceiling: int = 0
    next_us: int = 0
    parts: dict[int, set[int]] = field(default_factory=dict)
    """Slots that arrived of each event from the floor on."""
    whole: dict[int, None] = field(default_factory=dict)

    def advance(self, floor: int, now: int) -> None:
        self.floor, self.since_us, self.top = floor, now, max(self.top, floor)
        self.parts = {number: slots for number, slots in self.parts.items() if number >= floor}
        self.whole = {number: None for number in self.whole if number >= floor}


STREAMS_MAX: Final = 64
EVENTS_MAX: Final = 1_024
HEADS_AHEAD_MAX: Final = 100
"""How many events beyond the last true one heads are believed."""
WATCH_FROM_MULTIPLE: Final = 10
