"""The columns of an index: the subscription and expiry of each, and which are free; and the interface of every index.

Pure; imports the errors and the elements. A column is one constraint. A subscription is one or more columns, numbered
by its first, and matches if each of them is hit. The content of a column belongs to the index: bits of a filter, or
places in lists of tags. So `IndexColumns` knows nothing of elements, and every index is a `SubscriptionIndex` that
keeps its columns there.

A column has three transitions. `take` gives it to a subscription. `drop` takes it away from its subscription. `free`
makes it available again, once the index holds nothing of it any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.errors import ConfigError, LocalError
from veilcast.topics.elements import Cover

NumberArray: TypeAlias = npt.NDArray[np.int64]


class SubscriptionIndex(ABC):
    """At most `capacity` columns of subscriptions, and a search for those that match a publication."""

    def __init__(self, capacity: int) -> None:
        self._columns = IndexColumns(capacity)

    def __len__(self) -> int:
        """The number of subscriptions."""
        return self._columns.live

    @property
    def capacity(self) -> int:
        return self._columns.capacity

    @property
    def columns(self) -> int:
        """The number of columns that subscriptions take, of `capacity`."""
        return self._columns.taken

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The memory for the content of the columns and for book-keeping, in bytes."""

    def insert(self, covers: Collection[Cover], expiry: int) -> int:
        """Add one subscription, valid before `expiry`, and return its number."""
        return int(self.insert_many([covers], expiry)[0])

    @abstractmethod
    def insert_many(self, subscriptions: Sequence[Collection[Cover]], expiry: int) -> NumberArray:
        """Add subscriptions and return their numbers, in the order given. All or none are added."""

    def remove(self, number: int) -> None:
        """Remove one subscription before it expires."""
        self._release(self._columns.drop(number))

    def expire(self, now: int) -> NumberArray:
        """Remove the subscriptions that have expired by `now`.

        Returns their numbers, ascending, which may be given out again.
        """
        columns, numbers = self._columns.expire(now)
        self._release(columns)
        return numbers

    def next_expiry(self) -> int | None:
        """A time before which nothing expires; None if nothing ever will."""
        return self._columns.next_expiry()

    @abstractmethod
    def match(self, queries: Collection[bytes]) -> NumberArray:
        """The subscriptions that share an element with the queries in each of their columns, ascending."""

    @abstractmethod
    def _release(self, columns: NumberArray) -> None:
        """These columns belong to no subscription; free them once nothing is left in them."""


class IndexColumns:
    """At most `capacity` columns."""

    def __init__(self, capacity: int) -> None:
        if not 1 <= capacity <= COLUMNS_MAX:
            raise ConfigError(f"an index needs a capacity of 1 to {COLUMNS_MAX} columns")
        self.capacity = capacity
        # Of every column we keep the number it belongs to and the next column of that; of a first column, how many
        # there are (else 0) and when they expire.
        self._number = np.zeros(0, dtype=np.int32)
        self._next = np.zeros(0, dtype=np.int32)
        self._count = np.zeros(0, dtype=np.int32)
        self._expiry = np.zeros(0, dtype=np.int64)
        self.used = 0
        """Columns that were ever used; all unused columns are above these."""
        self._free: list[int] = []  # of those, which may be used again
        self.live = 0
        """The number of subscriptions."""
        self.taken = 0
        """The number of columns that subscriptions have."""
        self._soonest = NEVER

    @property
    def size(self) -> int:
        """Columns that are allocated so far; it grows with use."""
        return len(self._number)

    @property
    def spare(self) -> int:
        """Columns that can be taken; those that were dropped and are not yet free do not count."""
        return self.capacity - self.used + len(self._free)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self._number, self._next, self._count, self._expiry))

    def take(self, counts: Sequence[int], expiry: int) -> tuple[NumberArray, NumberArray]:
        """Take columns for subscriptions with these numbers of columns. Returns the columns, one subscription after the
        other, and the subscriptions' numbers. All or none are taken.

        Columns that were freed last come first, then new ones.
        """
        if not -NEVER <= expiry < NEVER:
            raise LocalError("an expiry must fit 64 bits")
        wanted = sum(counts)
        if wanted > self.spare:
            raise LocalError(f"the index is full: it holds at most {self.capacity} columns")
        columns = self._allot(wanted)
        each = np.array(counts, dtype=np.int64)
        lasts = np.cumsum(each) - 1
        numbers: NumberArray = columns[lasts - each + 1]
        self._number[columns] = np.repeat(numbers, each)
        self._next[columns] = np.append(columns[1:], _NONE)
        self._next[columns[lasts]] = _NONE
        self._count[numbers] = each
        self._expiry[numbers] = expiry
        self.live += len(numbers)
        self.taken += wanted
        self._soonest = min(self._soonest, expiry)
        return columns, numbers

    def drop(self, number: int) -> NumberArray:
        """Remove this subscription. Returns its columns, which belong to no subscription now."""
        if not 0 <= number < self.used or not self._count[number]:
            raise LocalError(f"there is no subscription {number}")
        return self._drop(np.array([number], dtype=np.int64))

    def expire(self, now: int) -> tuple[NumberArray, NumberArray]:
        """Remove the subscriptions that have expired by `now`: their columns, and their numbers, ascending."""
        if now < self._soonest:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing
        numbers = np.flatnonzero(self._expiry[: self.used] <= now)
        columns = self._drop(numbers)
        self._soonest = int(self._expiry[: self.used].min(initial=NEVER))
        return columns, numbers

    def next_expiry(self) -> int | None:
        """A time before which nothing expires; None if nothing ever will."""
        return self._soonest if self.live else None

    def free(self, columns: list[int]) -> None:
        """Nothing is left in these columns, so they may be taken again."""
        self._free += columns

    def are_taken(self, columns: NumberArray) -> npt.NDArray[np.bool_]:
        return np.not_equal(self._number[columns], _NONE)

    def subscriptions(self, columns: NumberArray) -> NumberArray:
        """The subscriptions all of whose columns are among these, which are taken and ascend.

        The result ascends, too.
        """
        if self.taken == self.live:
            return columns  # each is a subscription of its own
        numbers = self._number[columns]
        count = self._count[numbers]
        several, met = np.unique(numbers[count > 1], return_counts=True)
        return np.sort(np.concatenate((numbers[count == 1], several[met == self._count[several]]))).astype(np.int64)

    def _drop(self, numbers: NumberArray) -> NumberArray:
        self.live -= len(numbers)
        self._count[numbers] = 0
        self._expiry[numbers] = NEVER
        dropped = [numbers]
        while len(columns := dropped[-1]):
            following = self._next[columns]
            dropped.append(following[following != _NONE])
        every = np.concatenate(dropped)
        self._number[every] = _NONE
        self.taken -= len(every)
        return every

    def _allot(self, wanted: int) -> NumberArray:
        reused = [self._free.pop() for _ in range(min(wanted, len(self._free)))]
        fresh = np.arange(self.used, self.used + wanted - len(reused))
        self.used += len(fresh)
        if self.used > self.size:
            self._grow(min(self.capacity, max(self.used, 2 * self.size)))
        return np.concatenate((np.array(reused, dtype=np.int64), fresh))

    def _grow(self, size: int) -> None:
        more = size - self.size
        self._number = np.append(self._number, np.full(more, _NONE, dtype=np.int32))
        self._next = np.append(self._next, np.full(more, _NONE, dtype=np.int32))
        self._count = np.append(self._count, np.zeros(more, dtype=np.int32))
        self._expiry = np.append(self._expiry, np.full(more, NEVER))


NEVER: Final = 2**63 - 1
"""Later than any expiry."""

COLUMNS_MAX: Final = 2**31 - 1
"""Columns that a number of 32 bits can name."""

_NONE: Final = -1
