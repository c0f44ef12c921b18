"""Timers: many deadlines of one machine, each under a key, and the table of a machine's parts that have deadlines."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import log
from random import Random
from typing import Generic, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """One deadline for each key, in a heap.

    A timer that was moved or cancelled leaves a stale entry in the heap. The heap is rebuilt when more than half of it
    is stale (64 entries are always allowed), so memory is bounded by the number of keys.
    """

    def __init__(self) -> None:
        self._when: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0
        """Sequence number of the last entry; of equal deadlines, the timer that was set first comes first."""

    def __len__(self) -> int:
        return len(self._when)

    def __contains__(self, key: Key) -> bool:
        return key in self._when

    def __iter__(self) -> Iterator[Key]:
        return iter(self._when)

    def set(self, key: Key, when: int) -> None:
        """Set the deadline of this key, in place of an earlier one."""
        self._when[key] = when
        self._count += 1
        heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 2 * len(self._when) + 64:
            self._heap = [(when, place, key) for place, (key, when) in enumerate(self._when.items())]
            heapify(self._heap)

    def set_if_earlier(self, key: Key, when: int) -> None:
        """Set the deadline of this key, unless it has one that is not later."""
        known = self._when.get(key)
        if known is None or when < known:
            self.set(key, when)

    def cancel(self, key: Key) -> None:
        self._when.pop(key, None)

    def next_us(self) -> int | None:
        """The earliest deadline, in Unix microseconds; None if there is none."""
        heap, when = self._heap, self._when
        while heap and when.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: int, most: int | None = None) -> list[Key]:
        """Remove the timers that are due and return their keys, earliest first; at most `most` of them."""
        keys: list[Key] = []
        while (when := self.next_us()) is not None and when <= now and (most is None or len(keys) < most):
            key = heappop(self._heap)[2]
            del self._when[key]
            keys.append(key)
        return keys


class Timed(Protocol):
    """A part of a machine that has deadlines."""

    def handle(self, now: int) -> None:
        """Do what is due at `now`."""

    def next_us(self) -> int | None:
        """The next deadline, in Unix microseconds; None if there is none."""


class TimerTable:
    """The named parts of one machine that have deadlines, in the order in which the machine calls them."""

    def __init__(self, parts: Mapping[str, Timed]) -> None:
        self._parts = dict(parts)

    def handle(self, now: int) -> None:
        """Call every part. A part that has nothing to do at `now` does nothing."""
        for part in self._parts.values():
            part.handle(now)

    def next_us(self) -> int | None:
        return earliest(*[part.next_us() for part in self._parts.values()])

    def deadlines(self) -> dict[str, int | None]:
        """The next deadline of each part, by its name."""
        return {name: part.next_us() for name, part in self._parts.items()}


def draw_exponential(rng: Random, mean_us: int) -> int:
    """A time until the next of events that come at random: it says nothing about earlier or other events."""
    return round(-mean_us * log(1 - rng.random()))


def earliest(*moments: int | None) -> int | None:
    """The earliest of these moments; None stands for no moment."""
    # A loop, since machines ask for this after every step: it takes a third of the time of `min`.
    soonest = None
    for moment in moments:
        if moment is not None and (soonest is None or moment < soonest):
            soonest = moment
    return soonest
