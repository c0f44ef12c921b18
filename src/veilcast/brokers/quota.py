"""Quotas: how many items a machine stores for a publisher, a replica or a sender before it can use them.

Each class bounds one kind of store. All arguments have the same form: an item is charged to the participant that caused
it, and a participant over its quota loses only items of its own.

1. `PublisherQuota`: keys in transfer, and finished ones that are remembered, per publisher.
Claim: a publisher that fills its own part is refused for as long as the part is full. Other publishers are not.
Reason: every publisher has a quarter of the entries, and refused items are remembered like finished ones. So a part
that was dropped does not look, once there is room again, as if it had never come.
2. `IgnoredItems`: items left alone on the word of a single replica, which may have invented them.
Claim: they use nobody's entries except that replica's.
3. `ReplicaQuota`: shares and content blocks that cannot be used yet.
Claim: Byzantine replicas cannot evict an item that an honest replica has sent, even if they replay the same old items.
A flooding publisher cannot evict what others publish.
Assumption: publishers sign these items, but old ones can be replayed, and nobody can tell a replay from a new item
until other replicas send it too.
Reason: the capacity is divided among the replicas. An item stays as long as one of its senders is charged for it. A
replica over its quota loses its own charge on its oldest item, under the advertisement that it has the most items for.
4. `PendingMessages`: messages that arrived before what they depend on.
Reason for the need: a link keeps the order of one peer's messages, not of several peers'. A replica may hear of a
transfer before its own shares come, or get a share before enough neighbours have confirmed the advertisement.
Bound: a sender over its quota loses its oldest message, and the caller is told. Over the total, the sender with the
most messages loses its oldest.
5. `UnstartedTransfers`: dealt shares of transfers that have not begun.
Claim: a share that an honest holder dealt is never lost or refused.
Reason it matters: a receiver that lost a share would say that it lacks it, and the holder would reveal the share to
Byzantine replicas. No timeout is safe: a holder may be unresponsive, so that Byzantine holders are needed for the
transfer to begin, and those deal whenever they like. And a Byzantine publisher can make honest holders deal what no one
else deals.
Reason it holds: an honest holder remembers at most `done_max` transfers (`PublisherQuota`), each for longer than its
key is fresh here, and starts no more than that. Each holder has a quota of `done_max`. A holder over it is Byzantine,
and refusing its shares reveals nothing, because Byzantine replicas know them already.
Assumption: all brokers of an overlay have the same `done_max`.
Memory: not all of these transfers can be kept ready to begin. The most recently changed ones are active. Of the others
only the dealt shares are kept, about two kilobytes each, and these are checked again when needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError, LocalError, StaleError

ItemName: TypeAlias = tuple[bytes, bytes]
"""A key or a content: its advertisement, and its id under that advertisement."""


class ReplicaQuota:
    """Bounded: `most` items by the replicas of one scheme together (one each, if the replicas are more), for the two
    newest schemes of each node."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._charges: dict[ReplicaId, dict[bytes, dict[bytes, None]]] = {}
        """Charges of each replica by advertisement, the oldest first."""
        self._senders: dict[ItemName, dict[ReplicaId, None]] = {}

    def __len__(self) -> int:
        return len(self._senders)

    def charge(self, item: ItemName, sender: ReplicaId) -> list[ItemName]:
        """Charge the item to the replica that has just sent a part of it. Returns the items that this evicts."""
        self._senders.setdefault(item, {})[sender] = None
        charges = self._charges.setdefault(sender, {})
        of_advertisement = charges.setdefault(item[0], {})
        of_advertisement.pop(item[1], None)
        of_advertisement[item[1]] = None
        evicted = [(other, other_item) for other in self._outdated(sender) for other_item in self._items_of(other)]
        if sum(map(len, charges.values())) > max(1, self._most // sender.scheme.size):
            fullest = max(charges, key=lambda advertisement: len(charges[advertisement]))
            evicted.append((sender, (fullest, next(iter(charges[fullest])))))
        return [other_item for other, other_item in evicted if self._uncharge(other, other_item)]

    def release(self, item: ItemName) -> None:
        """Remove every charge for the item: it was used or discarded."""
        for sender in list(self._senders.get(item, ())):
            self._uncharge(sender, item)

    def _uncharge(self, sender: ReplicaId, item: ItemName) -> bool:
        """Remove one charge; True if it was the item's last."""
        advertisement, id_ = item
        charges = self._charges[sender]
        del charges[advertisement][id_]
        if not charges[advertisement]:
            del charges[advertisement]
        if not charges:
            del self._charges[sender]
        del self._senders[item][sender]
        if self._senders[item]:
            return False
        del self._senders[item]
        return True

    def _outdated(self, sender: ReplicaId) -> list[ReplicaId]:
        """Replicas of older schemes of the same node."""
        same_node = [other for other in self._charges if other.scheme.node == sender.scheme.node]
        current = sorted({other.scheme for other in same_node})[-_SCHEMES_KEPT:]
        return [other for other in same_node if other.scheme not in current and other != sender]

    def _items_of(self, sender: ReplicaId) -> list[ItemName]:
        return [(advertisement, id_) for advertisement, ids in self._charges[sender].items() for id_ in ids]


_SCHEMES_KEPT: Final = 2

Dependency = TypeVar("Dependency", bound=Hashable)
Sender = TypeVar("Sender", bound=Hashable)
Item = TypeVar("Item")


class _PendingEntry(NamedTuple, Generic[Dependency, Sender, Item]):
    dependency: Dependency
    sender: Sender
    item: Item
    size: int
    deadline_us: int


class PendingMessages(Generic[Dependency, Sender, Item]):
    """At most `count` items and `size` bytes of one sender, `senders` senders, and `total` items; each for
    `keep_us`."""

    def __init__(self, *, count: int, size: int, senders: int, keep_us: int, total: int | None = None) -> None:
        self._total = count * senders if total is None else total
        if min(count, size, senders, keep_us, self._total) < 1:
            raise LocalError("there must be room for at least one item, for some time")
        self._count, self._size, self._most, self._keep_us = count, size, senders, keep_us
        self._entries: dict[int, _PendingEntry[Dependency, Sender, Item]] = {}
        """Entries by sequence number, in the order of arrival."""
        self._of_key: dict[Dependency, dict[int, None]] = {}
        self._of_sender: dict[Sender, dict[int, None]] = {}
        self._sizes: Counter[Sender] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: Dependency, sender: Sender, what: Item, size: int, now: int) -> list[Item]:
        """Store an item. Returns the evicted items, or the item itself if it cannot be stored."""
        dropped = self.expire(now)
        if size > self._size or (sender not in self._of_sender and len(self._of_sender) >= self._most):
            return [*dropped, what]
        self._number += 1
        self._entries[self._number] = _PendingEntry(key, sender, what, size, now + self._keep_us)
        self._of_key.setdefault(key, {})[self._number] = None
        numbers = self._of_sender.setdefault(sender, {})
        numbers[self._number] = None
        self._sizes[sender] += size
        while len(numbers) > self._count or self._sizes[sender] > self._size:
            dropped.append(self._remove(next(iter(numbers))).item)
        if len(self._entries) > self._total:
            most = max(self._of_sender.values(), key=len)
            dropped.append(self._remove(next(iter(most))).item)
        return dropped

    def take(self, key: Dependency) -> list[tuple[Sender, Item]]:
        """Remove and return all items for this dependency, in the order of arrival."""
        entries = [self._remove(number) for number in list(self._of_key.get(key, ()))]
        return [(entry.sender, entry.item) for entry in entries]

    def expire(self, now: int) -> list[Item]:
        """Remove and return the items past their deadline."""
        dropped = []
        while self._entries and (first := next(iter(self._entries.items())))[1].deadline_us <= now:
            dropped.append(self._remove(first[0]).item)
        return dropped

    def _remove(self, number: int) -> _PendingEntry[Dependency, Sender, Item]:
        entry = self._entries.pop(number)
        del self._of_key[entry.dependency][number], self._of_sender[entry.sender][number]
        self._sizes[entry.sender] -= entry.size
        if not self._of_key[entry.dependency]:
            del self._of_key[entry.dependency]
        if not self._of_sender[entry.sender]:
            del self._of_sender[entry.sender], self._sizes[entry.sender]
        return entry


Transfer = TypeVar("Transfer", bound=Hashable)


class StoredDealing(NamedTuple):
    """An encoded dealt share, its advertisement, and its publisher's key."""

    dealt_share: Secret
    advertisement: bytes
    publisher: bytes


class UnstartedTransfers(Generic[Transfer]):
    """Per holder `each` transfers, and two dealings per transfer; `ready` active transfers."""

    def __init__(self, each: int, ready: int) -> None:
        self._each, self._most = each, ready
        self._kept: dict[Transfer, dict[ReplicaId, dict[bytes, StoredDealing]]] = {}
        """Dealings by transfer, holder and name."""
        self._counts: Counter[ReplicaId] = Counter()
        self._ready: dict[Transfer, None] = {}
        """Active transfers, the least recently changed first."""

    def __contains__(self, key: Transfer) -> bool:
        return key in self._kept

    @property
    def inactive_count(self) -> int:
        return len(self._kept) - len(self._ready)

    def check_quota(self, key: Transfer, holder: ReplicaId) -> None:
        """Raise if this holder is over its quota."""
        if holder not in self._kept.get(key, ()) and self._counts[holder] >= self._each:
            raise ExcessError("more unstarted transfers than an honest holder deals")

    def store(self, key: Transfer, holder: ReplicaId, item: bytes, dealing: StoredDealing) -> list[Transfer]:
        """Store a dealing. Returns the transfers that become inactive."""
        dealt = self._kept.setdefault(key, {})
        if holder not in dealt:
            self._counts[holder] += 1
        dealings = dealt.setdefault(holder, {})
        if len(dealings) < _DEALINGS_PER_HOLDER:
            dealings.setdefault(item, dealing)
        return self.activate(key)

    def activate(self, key: Transfer) -> list[Transfer]:
        """Make the transfer active. Returns the transfers that become inactive."""
        self._ready.pop(key, None)
        self._ready[key] = None
        folded = []
        while len(self._ready) > self._most:
            folded.append(next(iter(self._ready)))
            del self._ready[folded[-1]]
        return folded

    def stored_dealings(self, key: Transfer) -> list[StoredDealing]:
        """The transfer's dealings in the order of arrival."""
        return [dealing for dealings in self._kept[key].values() for dealing in dealings.values()]

    def remove(self, key: Transfer) -> None:
        """Remove the transfer: it has begun, or its key is no longer fresh."""
        self._ready.pop(key, None)
        for holder in self._kept.pop(key, ()):
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]


_DEALINGS_PER_HOLDER: Final = 2
"""The second dealing proves that a holder is Byzantine."""

Key = TypeVar("Key", bound=Hashable)


class PublisherQuota(Generic[Key]):
    """At most `active` items at a time, and `past` items remembered for `keep_us` each; of one publisher, a quarter of
    both."""

    def __init__(self, active: int, past: int, keep_us: int) -> None:
        if active < 1 or past < 1:
            raise LocalError("there must be room for at least one item")
        self._most, self._most_past, self._keep_us = active, past, keep_us
        self._active: dict[Key, bytes] = {}
        self._past: dict[Key, tuple[bytes, int]] = {}
        self._counts: Counter[bytes] = Counter()
        self._past_counts: Counter[bytes] = Counter()
        self._blocked: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._active)

    @property
    def past_count(self) -> int:
        return len(self._past)

    def is_past(self, key: Key, now: int) -> bool:
        self._sweep(now)
        return key in self._past

    def admit(self, key: Key, publisher: bytes, now: int) -> None:
        """Admit an item. Raises if it is past or over a quota; in the second case it is past from now on."""
        if self.is_past(key, now):
            raise StaleError("this is over here")
        if key in self._active:
            return
        full = len(self._active) >= self._most or self._counts[publisher] >= _publisher_part(self._most)
        if full or self._past_full(publisher) or now < self._blocked.get(publisher, 0):
            self.reject(key, publisher, now)
            raise ExcessError("no room for more transfers, or for more of this publisher")
        self._active[key] = publisher
        self._counts[publisher] += 1

    def finish(self, key: Key, now: int) -> None:
        """The item is past."""
        publisher = self._active.pop(key, None)
        if publisher is None:
            return
        self._counts[publisher] -= 1
        if not self._counts[publisher]:
            del self._counts[publisher]
        self._remember(key, publisher, now)

    def reject(self, key: Key, publisher: bytes, now: int) -> None:
        """The item is past without having been active."""
        self._sweep(now)
        if key in self._active or key in self._past:
            return
        if not self._past_full(publisher):
            self._remember(key, publisher, now)
        elif publisher in self._blocked or len(self._blocked) < self._most:
            self._blocked[publisher] = now + self._keep_us

    def _remember(self, key: Key, publisher: bytes, now: int) -> None:
        self._past[key] = (publisher, now + self._keep_us)
        self._past_counts[publisher] += 1

    def _past_full(self, publisher: bytes) -> bool:
        """True if no more past items fit. Active items count: each will be past."""
        everything = len(self._past) + len(self._active)
        return everything >= self._most_past or self._past_counts[publisher] >= _publisher_part(self._most_past)

    def _sweep(self, now: int) -> None:
        while self._past and (first := next(iter(self._past.items())))[1][1] <= now:
            key, (publisher, _) = first
            del self._past[key]
            self._past_counts[publisher] -= 1
            if not self._past_counts[publisher]:
                del self._past_counts[publisher]
        for publisher in [each for each, until in self._blocked.items() if until <= now]:
            del self._blocked[publisher]


class IgnoredItems(Generic[Key]):
    """Items ignored for `keep_us`: `each` per sending replica, by its key.

    The total is bounded only by the number of replicas: a few replicas could use up a shared limit.
    """

    def __init__(self, each: int, keep_us: int) -> None:
        self._each, self._keep_us = each, keep_us
        self._deadlines: dict[Key, tuple[bytes, int]] = {}
        self._counts: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, key: Key, sender: bytes, now: int) -> None:
        """Ignore the item, unless its sender is over its quota: no honest replica sends that many."""
        if not self.contains(key, now) and self._counts[sender] < self._each:
            self._deadlines[key] = (sender, now + self._keep_us)
            self._counts[sender] += 1

    def contains(self, key: Key, now: int) -> bool:
        while self._deadlines and (first := next(iter(self._deadlines.items())))[1][1] <= now:
            del self._deadlines[first[0]]
            sender = first[1][0]
            self._counts[sender] -= 1
            if not self._counts[sender]:
                del self._counts[sender]
        return key in self._deadlines


def _publisher_part(most: int) -> int:
    return max(1, most // _PARTS)


_PARTS: Final = 4
