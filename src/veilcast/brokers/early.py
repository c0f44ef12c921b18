"""Early: messages that came before what they belong to is known here. Kept by sender, so much of each, for a while.

Pure. Links keep the order of what one peer sends, not of what several do: a replica hears of a hop before its own
portions come, or gets a portion before enough neighbours have told it of the advertisement. Of each sender the oldest
goes when there is too much, and the caller is told.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from veilcast.errors import LocalError

Key = TypeVar("Key", bound=Hashable)
Sender = TypeVar("Sender", bound=Hashable)
Kept = TypeVar("Kept")


class _Entry(NamedTuple, Generic[Key, Kept]):
    key: Key
    what: Kept
    size: int
    until: int


class Early(Generic[Key, Sender, Kept]):
    """At most `count` things and `size` bytes of one sender, of `senders` senders, for `keep_us`."""

    def __init__(self, *, count: int, size: int, senders: int, keep_us: int) -> None:
        if min(count, size, senders, keep_us) < 1:
            raise LocalError("there is room for at least one thing, for a while")
        self._count, self._size, self._most, self._keep_us = count, size, senders, keep_us
        self._entries: dict[Sender, list[_Entry[Key, Kept]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, key: Key, sender: Sender, what: Kept, size: int, now: int) -> list[Kept]:
        """What had to go instead, or this very thing if there is no room for it."""
        dropped = self.expire(now)
        if size > self._size or (sender not in self._entries and len(self._entries) >= self._most):
            return [*dropped, what]
        entries = self._entries.setdefault(sender, [])
        entries.append(_Entry(key, what, size, now + self._keep_us))
        while len(entries) > self._count or sum(entry.size for entry in entries) > self._size:
            dropped.append(entries.pop(0).what)
        return dropped

    def take(self, key: Key) -> list[tuple[Sender, Kept]]:
        """All that belongs to this, in the order it came from each; it is gone then."""
        found = []
        for sender in list(self._entries):
            found += [(sender, entry.what) for entry in self._entries[sender] if entry.key == key]
            self._keep(sender, [entry for entry in self._entries[sender] if entry.key != key])
        return found

    def expire(self, now: int) -> list[Kept]:
        """What nobody came for."""
        dropped = []
        for sender in list(self._entries):
            dropped += [entry.what for entry in self._entries[sender] if entry.until <= now]
            self._keep(sender, [entry for entry in self._entries[sender] if entry.until > now])
        return dropped

    def _keep(self, sender: Sender, entries: list[_Entry[Key, Kept]]) -> None:
        if entries:
            self._entries[sender] = entries
        else:
            del self._entries[sender]
