"""The exact index: which of a million subscriptions hold a tag of this publication in each of their constraints?

Pure. It has the methods of `BloomIndex`. A node that fills its filters itself hides nothing from itself with them, so
it may as well keep the tags: nothing passes wrongly, and a tag that many subscriptions share is kept once.

Tags are kept in runs. A run is three arrays: its tags, sorted; where the columns of each begin; and the columns. Each
insertion becomes a run of its own. Two runs are merged whenever the younger is at least half as large as the older, so
there are few runs and every column is moved a logarithmic number of times. A publication looks its tags up in every run
by bisection, which costs next to nothing; most of the time goes into the columns that are found.

A run cannot forget one column cheaply. A subscription that ends leaves its columns behind. They no longer count and are
not given out again, until as many are stale as are in use, or no others are left: then all runs are swept. So removal
costs little on average, but the removal that triggers the sweep waits for a pass over the whole index (a third of a
second for a million ranges). Leases end with their epoch, all at once; that is when the sweep falls due.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.errors import LocalError
from veilcast.topics.column_allocator import NumberArray, SubscriptionIndex
from veilcast.topics.elements import Cover

Tags: TypeAlias = npt.NDArray[np.bytes_]
Short: TypeAlias = npt.NDArray[np.int32]
"""Columns as 32-bit numbers, which take most of the memory."""


class TagIndex(SubscriptionIndex):
    """At most `capacity` columns. The elements of a cover are tags."""

    def __init__(self, *, capacity: int) -> None:
        super().__init__(capacity)
        self._runs: list[_Run] = []
        self._stale: list[int] = []
        self._marks = np.zeros(0, dtype=np.bool_)
        self._look_cost = 0
        """The cost of looking into one more run since the last merge, in columns that are merged in the same time."""

    @property
    def nbytes(self) -> int:
        runs = sum(array.nbytes for run in self._runs for array in run)
        return runs + self._columns.nbytes + self._marks.nbytes

    def insert_many(self, subscriptions: Sequence[Collection[Cover]], expiry: int) -> NumberArray:
        constraints = [tuple(dict.fromkeys(cover)) for covers in subscriptions for cover in covers]
        if not all(subscriptions) or not all(constraints):
            raise LocalError("a subscription needs constraints of at least one tag each")
        tags = _tags([tag for cover in constraints for tag in cover])
        if len(constraints) > self._columns.spare:
            self._sweep()
        columns, numbers = self._columns.take([len(covers) for covers in subscriptions], expiry)
        if len(columns):
            self._add(_Run.of(tags, np.repeat(columns, [len(cover) for cover in constraints]).astype(np.int32)))
        return numbers

    def match(self, queries: Collection[bytes]) -> NumberArray:
        asked = _tags(list(dict.fromkeys(queries)))
        self._maybe_merge()
        found = [columns for run in self._runs for columns in run.find(asked)]
        hit = self._ascending(found)
        if self._stale:
            hit = hit[self._columns.are_taken(hit)]
        return self._columns.subscriptions(hit)

    def _ascending(self, found: list[Short]) -> NumberArray:
        """These columns, each once, ascending: sorted if they are few, by a mark for each column if they are many."""
        total = sum(map(len, found))
        if total * _FEW < self._columns.used:
            return np.unique(np.concatenate(found)).astype(np.int64) if found else np.zeros(0, dtype=np.int64)
        if len(self._marks) < self._columns.used:
            self._marks = np.zeros(self._columns.size, dtype=np.bool_)
        for columns in found:
            self._marks[columns] = True
        hit = np.flatnonzero(self._marks)
        self._marks.fill(False)
        return hit

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _add(self, run: _Run) -> None:
        while self._runs and 2 * len(run.columns) >= len(self._runs[-1].columns):
            run = self._runs.pop().merge(run)
        self._runs.append(run)

    def _maybe_merge(self) -> None:
        """Merge the last two runs when that costs no more than looking into both has cost. An index that is asked often
        and changed seldom then has few runs, and one that is changed often does not merge in vain. Long runs are not
        merged here, so no query waits for them.
        """
        if len(self._runs) < 2:
            return
        before, last = self._runs[-2:]
        both = len(before.columns) + len(last.columns)
        self._look_cost += _LOOK
        if both <= min(self._look_cost, _MERGED_MAX):
            self._look_cost = 0
            self._runs[-2:] = [before.merge(last)]

    def _release(self, columns: NumberArray) -> None:
        self._stale += columns.tolist()
        if len(self._stale) > max(self._columns.taken, _UNSWEPT):
            self._sweep()

    def _sweep(self) -> None:
        """Forget the stale columns, and free them."""
        if self._stale:
            taken = self._columns.are_taken(np.arange(self._columns.used))
            self._runs = [kept for run in self._runs if len((kept := run.keep_columns(taken)).columns)]
            self._columns.free(self._stale)
            self._stale = []


class _Run(NamedTuple):
    """Sorted tags without repeats; the columns of tag i are `columns[starts[i] : starts[i + 1]]`."""

    tags: Tags
    starts: npt.NDArray[np.int64]
    columns: Short

    @classmethod
    def of(cls, tags: Tags, columns: Short) -> _Run:
        """From tags in any order, a column beside each."""
        order = np.argsort(tags, kind="stable")
        tags = tags[order]
        firsts = np.flatnonzero(np.append(True, tags[1:] != tags[:-1]))
        return cls(tags[firsts], np.append(firsts, len(tags)), columns[order])

    def find(self, asked: Tags) -> Iterator[Short]:
        """The columns of each of these tags that is here."""
        places = self.tags.searchsorted(asked)
        places[places == len(self.tags)] = 0
        for place in places[self.tags[places] == asked].tolist():
            yield self.columns[self.starts[place] : self.starts[place + 1]]

    def merge(self, other: _Run) -> _Run:
        """Both in one; the columns of a tag that both have stand one after the other."""
        tags = np.union1d(self.tags, other.tags)
        homes = [np.searchsorted(tags, run.tags) for run in (self, other)]
        counts = np.zeros(len(tags), dtype=np.int64)
        for run, home in zip((self, other), homes, strict=True):
            counts[home] += np.diff(run.starts)
        starts = np.append(0, np.cumsum(counts))
        columns = np.empty(starts[-1], dtype=np.int32)
        room = starts[:-1].copy()
        for run, home in zip((self, other), homes, strict=True):
            each = np.diff(run.starts)
            columns[np.repeat(room[home] - run.starts[:-1], each) + np.arange(len(run.columns))] = run.columns
            room[home] += each
        return _Run(tags, starts, columns)

    def keep_columns(self, taken: npt.NDArray[np.bool_]) -> _Run:
        """Without the columns that are not taken, and without the tags that have no others."""
        kept = taken[self.columns]
        starts = np.append(0, np.cumsum(kept))[self.starts]
        needed = np.diff(starts) > 0
        return _Run(self.tags[needed], np.append(starts[:-1][needed], starts[-1]), self.columns[kept])


def _tags(tags: Sequence[bytes]) -> Tags:
    if not all(isinstance(tag, bytes) and len(tag) == TAG for tag in tags):
        raise LocalError(f"a tag is {TAG} bytes")
    return np.frombuffer(b"".join(tags), dtype=f"S{TAG}")


TAG: Final = 16
"""Bytes of a tag. Among 2^32 tags two are equal by chance with a probability of 2^-65."""

_FEW: Final = 64
"""If fewer than one column in this many is hit, the hits are sorted: reading every mark would take longer."""

_LOOK: Final = 64
"""Columns that are merged in the time of looking for a few tags in a run."""

_MERGED_MAX: Final = 1 << 15
"""Columns that are merged at most: a merge of more would delay a query by more than a few milliseconds."""

_UNSWEPT: Final = 1024
"""Stale columns that may wait, however few columns are in use."""
