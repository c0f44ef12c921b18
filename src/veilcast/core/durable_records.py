"""Durable records: what a machine asks its driver to write to the disk, and what waits until it is written.

Claim: a machine that is killed at any moment has told nobody anything that its next life does not know.
Assumption: the driver calls `stored` only for a record that is on the disk.
Reason: whatever relies on a record runs when `stored` confirms the record, and not before. A record stands until the
next record of its number is written, or until it is settled; a machine's next life is given the records that stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from veilcast.machine import Event, Record, Settled

WhenDurable: TypeAlias = Callable[[int], None]
"""Callback that runs once a record is durable; receives the time."""


class DurableRecords:
    """Numbers records, and runs callbacks when they are on the disk. Bounded by what its owner asks for.

    `standing` are the numbers of the records of earlier lives that stand.
    """

    def __init__(self, standing: Iterable[int]) -> None:
        self._last = max(standing, default=0)
        self._unwritten: dict[int, tuple[int, list[WhenDurable]]] = {}
        """For each record that is not written yet, the number of writes under way, and the callbacks for the last."""
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        """The number of records that are not on the disk yet."""
        return len(self._unwritten)

    def __contains__(self, record: int) -> bool:
        """True if a write of this record is under way."""
        return record in self._unwritten

    def keep(self, data: bytes, record: int | None = None) -> int:
        """Ask the driver to write this, in place of `record` if one is named. Returns the number of the record."""
        if record is None:
            self._last += 1
            record = self._last
        writes, callbacks = self._unwritten.get(record, (0, []))
        self._unwritten[record] = (writes + 1, callbacks)
        self._events.append(Record(record, data))
        return record

    def when_durable(self, record: int, now: int, then: WhenDurable) -> None:
        """Run `then` once the last write of the record is on the disk; at once if it is."""
        if record in self._unwritten:
            self._unwritten[record][1].append(then)
        else:
            then(now)

    def stored(self, record: int, now: int) -> None:
        """The driver confirms one write of this record."""
        writes, callbacks = self._unwritten.pop(record, (0, []))
        if writes > 1:
            self._unwritten[record] = (writes - 1, callbacks)
            return
        for then in callbacks:
            then(now)

    def settle(self, record: int) -> None:
        """The record is done with: the driver may forget it, and its callbacks do not run."""
        self._unwritten.pop(record, None)
        self._events.append(Settled(record))

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None
