"""The ledger: what a machine asks its disk to keep, and what waits for it.

Whatever rests on a record leaves when the record is on the disk, and not before: so a machine that is killed anywhere
in between has told nobody what it cannot keep. A record stands until the next one of its number, or until it is
settled; a machine's next life is handed what stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from veilcast.machine import Event, Record, Settled

WhenDurable: TypeAlias = Callable[[int], None]
"""What is to be done once a record is on the disk; it is told when that is."""


class DurableRecords:
    """Bounded by those who keep: what waits for the disk is what they asked for."""

    def __init__(self, kept: Iterable[int]) -> None:
        self._last = max(kept, default=0)
        self._unwritten: dict[int, tuple[int, list[WhenDurable]]] = {}
        """For each record, how many writes of it are under way, and what waits for the last."""
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        return len(self._unwritten)

    def keep(self, data: bytes, record: int | None = None) -> int:
        """Ask for this to be kept, in place of that record if one is named; the number of the record."""
        if record is None:
            self._last += 1
            record = self._last
        writes, waiting = self._unwritten.get(record, (0, []))
        self._unwritten[record] = (writes + 1, waiting)
        self._events.append(Record(record, data))
        return record

    def when_durable(self, record: int, now: int, then: WhenDurable) -> None:
        """Do this when the record is on the disk, as it was asked for last; at once, if it is."""
        if record in self._unwritten:
            self._unwritten[record][1].append(then)
        else:
            then(now)

    def stored(self, record: int, now: int) -> None:
        writes, waiting = self._unwritten.pop(record, (0, []))
        if writes > 1:
            self._unwritten[record] = (writes - 1, waiting)
            return
        for then in waiting:
            then(now)

    def settle(self, record: int) -> None:
        """Nothing more is to be done for this record, nor for what waits for it."""
        self._unwritten.pop(record, None)
        self._events.append(Settled(record))

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None
