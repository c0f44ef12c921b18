"""The queue of a world: entries in order of (time, sequence), taken eight milliseconds at a time.

A heap pays for its depth on every step, most of it in cache misses: with 10^5 frames in flight that is more
than all else a step costs. Nothing needs the whole queue in order, though, only the next few entries. So
entries are thrown unsorted into buckets of 8,192 microseconds, a heap keeps the few bucket numbers, and a
bucket is sorted once, when its time has come. The order is exactly that of a heap.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from veilcast.sim.host import Host
from veilcast.sim.links import Link

Entry: TypeAlias = tuple[int, int, Host | None, Link | None, Any]
"""Time, sequence number, and what happens; see `Engine._loop`. No two are alike in the first two."""


class Agenda:
    """`buckets` is open to the engine's loop: an entry that finds its bucket there may simply be appended."""

    __slots__ = ("_numbers", "_open", "buckets")

    def __init__(self) -> None:
        self.buckets: dict[int, list[Entry]] = {}
        self._numbers: list[int] = []
        # The bucket that is being gone through, and not among `buckets`, since its order must be kept.
        self._open: list[Entry] | None = None

    def push(self, entry: Entry) -> None:
        """Add an entry; while a bucket is open, none that belongs before the entry it is at."""
        number = entry[0] >> BUCKET_BITS
        bucket = self.buckets.get(number)
        if bucket is not None:
            bucket.append(entry)
        elif self._open and number <= self._open[0][0] >> BUCKET_BITS:
            insort(self._open, entry)
        else:
            self.buckets[number] = [entry]
            heappush(self._numbers, number)

    def open(self) -> list[Entry]:
        """The next bucket, to be iterated over: what is pushed into it meanwhile turns up in its place."""
        number = heappop(self._numbers)
        bucket = self._open = self.buckets.pop(number)
        bucket.sort()
        return bucket

    def close(self, time: int, sequence: int) -> None:
        """Put back what the open bucket holds after this entry, which was the last to be taken."""
        bucket, self._open = self._open or [], None
        for entry in bucket[bisect_right(bucket, (time, sequence + 1)) :]:
            self.push(entry)

    def remove(self, entry: Entry) -> None:
        """Take an entry away, if it is still there; while no bucket is open."""
        bucket = self.buckets.get(entry[0] >> BUCKET_BITS, [])
        if entry in bucket:
            bucket.remove(entry)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in no order; for counting, while no bucket is open."""
        for bucket in self.buckets.values():
            yield from bucket


BUCKET_BITS: Final = 13
