"""Gaps: what of a stream did not come, though its broker was there all the time.

A broker that has no room for what a slow reader is still to get drops it, says nothing, and stays connected (mosquitto
above `max_queued_messages`). Events of a stream are numbered, and who reads all of a topic gets every candidate of
each: one that is lacking was dropped, and the reader asks for repeats as if it had been away. Who reads ranges cannot
tell what was dropped from what was not meant for it.

What is lacking is counted for all candidates alike, whichever is true: were only the truth missed, a broker had but to
drop one candidate and see whether somebody asks. Therefore heads are believed as they come, signed by nobody. To keep
that from being used, only streams are watched of which something true was opened, up to so many events beyond it; not
from that one on but from the next of ten, so that to drop the first truth of a stream tells nothing either; and each
request of a stream makes the pause to the next one longer, up to a quarter of the time for which events are kept.

The end of a stream is not missed before something follows it.
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
        self._alarms: Timers[StreamKey] = Timers()

    def __len__(self) -> int:
        return sum(len(each.parts) for each in self._streams.values())

    def opened_truth(self, key: StreamKey, number: int, now: int) -> None:
        """Something true of this stream was read: so there is one, and it has come as far as this."""
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
        """A candidate, true or not."""
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
            self._alarms.cancel(key)
        elif key not in self._alarms:
            self._alarms.set(key, max(now + self._settle_us, stream.next_us))

    def due(self, now: int) -> list[tuple[int, int]]:
        """For each stream of which something is lacking, its session, and since when that may be so."""
        found = []
        for key in self._alarms.pop_due(now):
            stream = self._streams[key]
            if now - stream.since_us > self._keep_us:
                stream.advance(stream.top, now)  # Nobody has it any more.
                continue
            found.append((key.period, stream.since_us))
            stream.pause_us = min(2 * stream.pause_us, max(self._settle_us, self._keep_us // 4))
            stream.next_us = now + stream.pause_us
            self._alarms.set(key, stream.next_us)
        return found

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def watch(self, topics: Iterable[str]) -> None:
        """Of these topics all is read, and of no others any more."""
        kept = set(topics)
        for key in [key for key in self._streams if key.topic not in kept]:
            self._drop(key)

    def end_period(self, span: int) -> None:
        for key in [key for key in self._streams if key.period == span]:
            self._drop(key)

    def _drop(self, key: StreamKey) -> None:
        del self._streams[key]
        self._alarms.cancel(key)


@dataclass(slots=True)
class _Stream:
    floor: int
    """All before has come, or is not waited for."""
    top: int
    """Nothing from here on is known."""
    since_us: int
    """When all before the floor had come."""
    pause_us: int
    ceiling: int = 0
    next_us: int = 0
    parts: dict[int, set[int]] = field(default_factory=dict)
    """Of each event from the floor on, the slots that came."""
    whole: dict[int, None] = field(default_factory=dict)

    def advance(self, floor: int, now: int) -> None:
        self.floor, self.since_us, self.top = floor, now, max(self.top, floor)
        self.parts = {number: slots for number, slots in self.parts.items() if number >= floor}
        self.whole = {number: None for number in self.whole if number >= floor}


STREAMS_MAX: Final = 64
EVENTS_MAX: Final = 1_024
HEADS_AHEAD_MAX: Final = 100
"""How far beyond the last true event heads are believed."""
WATCH_FROM_MULTIPLE: Final = 10
