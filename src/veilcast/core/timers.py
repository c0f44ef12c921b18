"""Alarms: many deadlines of one machine, each under a key of its own, and the one that comes next."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """As many as there are keys; an alarm that was moved or dropped leaves an entry behind, and these are swept up."""

    def __init__(self) -> None:
        self._when: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0
        """Of all that was ever set: it orders what is due at one moment, and keys need not compare."""

    def __len__(self) -> int:
        return len(self._when)

    def __contains__(self, key: Key) -> bool:
        return key in self._when

    def __iter__(self) -> Iterator[Key]:
        return iter(self._when)

    def set(self, key: Key, when: int) -> None:
        """Wake for this key then, and at no other time."""
        self._when[key] = when
        self._count += 1
        heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 2 * len(self._when) + 64:
            self._heap = [(when, place, key) for place, (key, when) in enumerate(self._when.items())]
            heapify(self._heap)

    def cancel(self, key: Key) -> None:
        self._when.pop(key, None)

    def next_us(self) -> int | None:
        heap, when = self._heap, self._when
        while heap and when.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: int, most: int | None = None) -> list[Key]:
        """The keys whose time has come, in order, or the first so many of them; their alarms are gone."""
        keys: list[Key] = []
        while (when := self.next_us()) is not None and when <= now and (most is None or len(keys) < most):
            key = heappop(self._heap)[2]
            del self._when[key]
            keys.append(key)
        return keys


def earliest(*moments: int | None) -> int | None:
    # A loop, since machines ask for this after every step: it takes a third of the time of `min`.
    soonest = None
    for moment in moments:
        if moment is not None and (soonest is None or moment < soonest):
            soonest = moment
    return soonest
