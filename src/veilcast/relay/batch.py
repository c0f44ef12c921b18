"""A batch: messages that arrive within a time window leave together, in random order.

An observer of both sides of a proxy links incoming to outgoing messages by time and order. A batch hides both, up to
its size: the sender of one of n messages is one of n. A batch does not protect against an observer of many batches
(statistical disclosure; `experiments/relay-attacks`).
"""

from __future__ import annotations

from random import Random
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Batch(Generic[Item]):
    """Bounded: a batch of `most` items is released at once."""

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
        """Return all items, shuffled, if the batch is due; otherwise none."""
        if self.due_us is None or self.due_us > now:
            return []
        items, self._items, self.due_us = self._items, [], None
        self._rng.shuffle(items)
        return items
