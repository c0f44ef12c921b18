"""Early: messages that came before what they belong to is known here. Kept by sender, so much of each, for a while.

Pure. Links keep the order of what one peer sends, not of what several do: a replica hears of a hop before its own
portions come, or gets a portion before enough neighbours have told it of the advertisement. Of each sender the oldest
goes when there is too much, and the caller is told. When there is too much of all together, who has most loses its
oldest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from veilcast.errors import LocalError

Key = TypeVar("Key", bound=Hashable)
Sender = TypeVar("Sender", bound=Hashable)
Kept = TypeVar("Kept")


class _Entry(NamedTuple, Generic[Key, Sender, Kept]):
    key: Key
    sender: Sender
    what: Kept
    size: int
    until: int


class Early(Generic[Key, Sender, Kept]):
    """At most `count` things and `size` bytes of one sender, of `senders` senders, for `keep_us`; `total` things."""

    def __init__(self, *, count: int, size: int, senders: int, keep_us: int, total: int | None = None) -> None:
        self._total = count * senders if total is None else total
        if min(count, size, senders, keep_us, self._total) < 1:
            raise LocalError("there is room for at least one thing, for a while")
        self._count, self._size, self._most, self._keep_us = count, size, senders, keep_us
        self._entries: dict[int, _Entry[Key, Sender, Kept]] = {}
        """In the order they came, under numbers."""
        self._of_key: dict[Key, dict[int, None]] = {}
        self._of_sender: dict[Sender, dict[int, None]] = {}
        self._sizes: Counter[Sender] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: Key, sender: Sender, what: Kept, size: int, now: int) -> list[Kept]:
        """What had to go instead, or this very thing if there is no room for it."""
        dropped = self.expire(now)
        if size > self._size or (sender not in self._of_sender and len(self._of_sender) >= self._most):
            return [*dropped, what]
        self._number += 1
        self._entries[self._number] = _Entry(key, sender, what, size, now + self._keep_us)
        self._of_key.setdefault(key, {})[self._number] = None
        numbers = self._of_sender.setdefault(sender, {})
        numbers[self._number] = None
        self._sizes[sender] += size
        while len(numbers) > self._count or self._sizes[sender] > self._size:
            dropped.append(self._remove(next(iter(numbers))).what)
        if len(self._entries) > self._total:
            most = max(self._of_sender.values(), key=len)
            dropped.append(self._remove(next(iter(most))).what)
        return dropped

    def take(self, key: Key) -> list[tuple[Sender, Kept]]:
        """All that belongs to this, in the order it came; it is gone then."""
        entries = [self._remove(number) for number in list(self._of_key.get(key, ()))]
        return [(entry.sender, entry.what) for entry in entries]

    def expire(self, now: int) -> list[Kept]:
        """What nobody came for."""
        dropped = []
        while self._entries and (first := next(iter(self._entries.items())))[1].until <= now:
            dropped.append(self._remove(first[0]).what)
        return dropped

    def _remove(self, number: int) -> _Entry[Key, Sender, Kept]:
        entry = self._entries.pop(number)
        del self._of_key[entry.key][number], self._of_sender[entry.sender][number]
        self._sizes[entry.sender] -= entry.size
        if not self._of_key[entry.key]:
            del self._of_key[entry.key]
        if not self._of_sender[entry.sender]:
            del self._of_sender[entry.sender], self._sizes[entry.sender]
        return entry
