"""A batch: what comes in within a while leaves together, in an order that says nothing of the one it came in.

Whoever sees both sides of a proxy links what goes in to what comes out by time and order. A batch takes both away, up
to its size: who sent one of n is one of n. It says nothing against somebody who watches for many batches (statistical
disclosure; `experiments/relay-attacks`).
"""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Batch(Generic[Item]):
    """Bounded: with `most` items it leaves at once."""

    def __init__(self, rng: Random, *, wait_us: int, most: int) -> None:
        self._rng, self._wait_us, self._most = rng, wait_us, most
        self._items: list[Item] = []
        self.due_us: int | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, now: int) -> None:
        self._items.append(item)
        if self.due_us is None:
            self.due_us = now + self._wait_us
        if len(self._items) >= self._most:
            self.due_us = now

    def take(self, now: int) -> list[Item]:
        """All of them, shuffled, if their time has come; else none."""
        if self.due_us is None or self.due_us > now:
            return []
        items, self._items, self.due_us = self._items, [], None
        self._rng.shuffle(items)
        return items
