"""Bounded memory: maps and sets that evict their oldest entry, and a quota for each peer.

Eviction is deterministic: entries leave in the order in which they came, or in which they were last renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Peer = TypeVar("Peer", bound=Hashable)


class BoundedMap(dict[Key, Value]):
    """A dict of at most `capacity` entries. A new key evicts the oldest entry.

    To assign to a key that is there changes its value and leaves its age as it is, as in every dict; `renew` and
    `touch` make the entry the newest.
    """

    __slots__ = ("capacity",)

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self.capacity:
            del self[next(iter(self))]

    def renew(self, key: Key, value: Value) -> None:
        """Make this the newest entry."""
        self.pop(key, None)
        self[key] = value

    def touch(self, key: Key, make: Callable[[], Value]) -> Value:
        """Make the entry of this key the newest, and return its value. A key that is not there gets a value made."""
        value = self.pop(key) if key in self else make()
        self[key] = value
        return value

    def setdefault(self, key: Key, default: Value) -> Value:
        if key not in self:
            self[key] = default
            return default
        return self[key]

    def update(self, entries: Mapping[Key, Value] | Iterable[tuple[Key, Value]]) -> None:  # type: ignore[override]
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        raise TypeError("a bounded map is filled by assignment or `update`")


class BoundedSet(BoundedMap[Key, None]):
    """The last `capacity` keys that were added, in that order."""

    __slots__ = ()

    def add(self, key: Key) -> None:
        """Add a key. The age of a key that is there stays as it is."""
        self[key] = None


def remember(names: dict[Key, Value], key: Key, value: Value, capacity: int) -> None:
    """Make this the newest entry of a dict; if the dict is full, its oldest entry is evicted first."""
    names.pop(key, None)
    if len(names) >= capacity:
        del names[next(iter(names))]
    names[key] = value


class PeerQuota(Generic[Peer, Key]):
    """The items that each peer has brought, oldest first, so that a peer over its quota pays with its own items.

    Claim: no peer can evict an item that another peer has brought.
    Reason: `oldest_over` names an item of the peer that is over its quota, and of no other.

    The quota holds no items. The table of the items bounds it.
    """

    def __init__(self) -> None:
        self._items: dict[Peer, dict[Key, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def charge(self, peer: Peer, item: Key) -> None:
        """Charge this item to the peer. A second charge of the same item changes nothing."""
        self._items.setdefault(peer, {})[item] = None

    def release(self, peer: Peer, item: Key) -> None:
        """Take this item off the peer's account, if it is there."""
        items = self._items.get(peer)
        if items is not None:
            items.pop(item, None)
            if not items:
                del self._items[peer]

    def oldest_over(self, peer: Peer, quota: int) -> Key | None:
        """The oldest item of the peer, if the peer has more than `quota` items."""
        items = self._items.get(peer, {})
        return next(iter(items)) if len(items) > quota else None
