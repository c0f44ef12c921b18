"""Quotas of the stores that hold an item before it can be used, or after it must not be used again.

Seven stores hold such items. Anyone could fill a shared store, so each item has an owner.

    store                   item                                   owner                    beyond the quota
    PublisherQuota          key in transfer, or past               its publisher            refused, and past
    IgnoredItems            transfer ignored on a replica's word   that replica             not recorded
    ReplicaQuota            incomplete key or content              each replica sending it  its oldest charge goes
    PendingMessages         message before its dependency          its sender               its oldest goes
    UnstartedTransfers      dealt shares before a transfer begins  their holder             refused
    AwaitedClaims           client's claim that a sibling knows    that sibling             not recorded
    UnmatchedSubscriptions  subscription without a checked proof   its node or client       the oldest goes

Property: a participant that fills its quota loses items of its own, and no item of an honest participant.
Assumption: an honest participant never has more items in a store than its quota.
Reason:
1. The owner is known for certain: a replica, holder, sibling or client by its link, a publisher by its signature.
2. Each owner has a quota of its own, and an item beyond it displaces or blocks items of that owner only.
3. The owners are bounded, so the store is: replicas by the overlay, clients by `clients_max`, senders of pending
   messages by a number beyond which a new sender is refused. Publishers are not bounded. So each has a quarter of a
   store that is bounded as a whole, and four of them can fill it.

Why the assumption holds, and what each store adds:

- `PublisherQuota`: refused items are remembered like finished ones. So a part that was dropped does not look, once
  there is room again, as if it had never come. A publisher that fills its part is refused for as long as that lasts.
- `IgnoredItems`: a replica may have invented the item, so it counts for that replica alone. An honest replica sends no
  more than `done_max` transfers in the time, because it remembers no more.
- `ReplicaQuota`: publishers sign these items, but old ones can be replayed, and nobody can tell a replay from a new
  item until other replicas send it too. The capacity is divided among the replicas. An item stays as long as one of its
  senders is charged for it. A replica beyond its quota loses its charge on its oldest item, under the advertisement
  that it has the most items for. So Byzantine replicas evict nothing that an honest replica has sent, however many they
  are and even if all replay the same items. A flooding publisher evicts nothing that others publish.
- `PendingMessages`: a link keeps the order of one peer's messages, not of several peers'. A replica may hear of a
  transfer before its own shares come, or get a share before enough neighbours have reported the advertisement. Beyond
  the total, the sender with the most messages loses its oldest.
- `UnstartedTransfers`: no share of an honest holder may be lost or refused. Its receiver would say that it lacks the
  share, and the holder would reveal the share to Byzantine replicas. No timeout is safe: a holder may be unresponsive,
  so that Byzantine holders are needed for the transfer to begin, and those deal whenever they like. And a Byzantine
  publisher can make honest holders deal what no other holder deals. An honest holder remembers at most `done_max`
  transfers (`PublisherQuota`), each for longer than its key is fresh here, and starts no more. So `done_max` is the
  quota of each holder, and must be the same for all brokers of an overlay. A holder beyond it is Byzantine; refusing
  its shares reveals nothing, because Byzantine replicas know them already. Not all of these transfers can be kept ready
  to begin. The most recently changed ones are active. Of the others only the dealt shares are kept, about two kilobytes
  each, and these are checked again when needed.
- `UnmatchedSubscriptions`: anyone can create them, because a subscriber's proof cannot be verified before the topic is
  advertised. Each neighbouring node has a quota of its own: its subscriptions have passed other brokers, and a broker
  that has just started hears of all subscribers before it hears of the publisher. Clients share the rest. When that is
  full, the client with the most subscriptions loses its oldest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.overlay import node_of_hop
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError, LocalError, StaleError
from veilcast.machine import Address
from veilcast.wire.brokers import Claim

Key = TypeVar("Key", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)
Dependency = TypeVar("Dependency", bound=Hashable)
Item = TypeVar("Item")

ItemName: TypeAlias = tuple[bytes, bytes]
"""A key or a content: its advertisement, and its id under that advertisement."""


# --- transfers that are active, past or ignored -----------------------------------------------------------------------


class PublisherQuota(Generic[Key]):
    """At most `active` items at a time, and `past` items remembered for `keep_us` each; of one publisher, a quarter of
    both."""

    def __init__(self, active: int, past: int, keep_us: int) -> None:
        if active < 1 or past < 1:
            raise LocalError("there must be room for at least one item")
        self._active_max, self._past_max, self._keep_us = active, past, keep_us
        self._active: dict[Key, bytes] = {}
        self._counts: Counter[bytes] = Counter()
        self._past: _Remembered[Key] = _Remembered(keep_us)
        self._blocked: dict[bytes, int] = {}
        """Publishers whose refused items found no room, and until when they are refused."""

    def __len__(self) -> int:
        return len(self._active)

    @property
    def past_count(self) -> int:
        return len(self._past)

    def is_past(self, key: Key, now: int) -> bool:
        self._expire(now)
        return key in self._past

    def admit(self, key: Key, publisher: bytes, now: int) -> None:
        """Admit an item. Raises if it is past or beyond a quota; in the second case it is past from now on."""
        if self.is_past(key, now):
            raise StaleError("this is over here")
        if key in self._active:
            return
        full = len(self._active) >= self._active_max or self._counts[publisher] >= _part(self._active_max)
        if full or self._is_past_full(publisher) or now < self._blocked.get(publisher, 0):
            self.reject(key, publisher, now)
            raise ExcessError("no room for more transfers, or for more of this publisher")
        self._active[key] = publisher
        self._counts[publisher] += 1

    def finish(self, key: Key, now: int) -> None:
        """The item is past."""
        publisher = self._active.pop(key, None)
        if publisher is not None:
            _decrement(self._counts, publisher)
            self._past.add(key, publisher, now)

    def reject(self, key: Key, publisher: bytes, now: int) -> None:
        """The item is past without having been active."""
        self._expire(now)
        if key in self._active or key in self._past:
            return
        if not self._is_past_full(publisher):
            self._past.add(key, publisher, now)
        elif publisher in self._blocked or len(self._blocked) < self._active_max:
            self._blocked[publisher] = now + self._keep_us

    def _is_past_full(self, publisher: bytes) -> bool:
        """True if no more past items fit. Active items count: each will be past."""
        everything = len(self._past) + len(self._active)
        return everything >= self._past_max or self._past.count(publisher) >= _part(self._past_max)

    def _expire(self, now: int) -> None:
        self._past.expire(now)
        for publisher in [each for each, until in self._blocked.items() if until <= now]:
            del self._blocked[publisher]


class IgnoredItems(Generic[Key]):
    """Items ignored for `keep_us`: `each` per sending replica, by its key.

    The total is bounded only by the number of replicas: a few replicas could use up a shared limit.
    """

    def __init__(self, each: int, keep_us: int) -> None:
        self._each, self._items = each, _Remembered[Key](keep_us)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, key: Key, sender: bytes, now: int) -> None:
        """Ignore the item, unless its sender is beyond its quota: no honest replica sends that many."""
        if not self.contains(key, now) and self._items.count(sender) < self._each:
            self._items.add(key, sender, now)

    def contains(self, key: Key, now: int) -> bool:
        self._items.expire(now)
        return key in self._items


class _Remembered(Generic[Key]):
    """Items with an owner each, remembered for `keep_us`."""

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._entries: dict[Key, tuple[bytes, int]] = {}
        """Owner and deadline, the earliest deadline first."""
        self._counts: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def count(self, owner: bytes) -> int:
        return self._counts[owner]

    def add(self, key: Key, owner: bytes, now: int) -> None:
        self._entries[key] = (owner, now + self._keep_us)
        self._counts[owner] += 1

    def expire(self, now: int) -> None:
        while self._entries and (first := next(iter(self._entries.items())))[1][1] <= now:
            del self._entries[first[0]]
            _decrement(self._counts, first[1][0])


# --- items that cannot be used yet ------------------------------------------------------------------------------------


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
        released = [(other, other_item) for other in self._outdated(sender) for other_item in self._items_of(other)]
        if sum(map(len, charges.values())) > max(1, self._most // sender.scheme.size):
            fullest = max(charges, key=lambda advertisement: len(charges[advertisement]))
            released.append((sender, (fullest, next(iter(charges[fullest])))))
        return [other_item for other, other_item in released if self._uncharge(other, other_item)]

    def release(self, item: ItemName) -> None:
        """Remove every charge for the item: it was used or discarded."""
        for sender in list(self._senders.get(item, ())):
            self._uncharge(sender, item)

    def _uncharge(self, sender: ReplicaId, item: ItemName) -> bool:
        """Remove one charge; True if it was the item's last."""
        advertisement, id_ = item
        _remove(self._charges[sender], advertisement, id_)
        if not self._charges[sender]:
            del self._charges[sender]
        _remove(self._senders, item, sender)
        return item not in self._senders

    def _outdated(self, sender: ReplicaId) -> list[ReplicaId]:
        """Replicas of older schemes of the same node."""
        same_node = [other for other in self._charges if other.scheme.node == sender.scheme.node]
        current = sorted({other.scheme for other in same_node})[-_SCHEMES_KEPT:]
        return [other for other in same_node if other.scheme not in current and other != sender]

    def _items_of(self, sender: ReplicaId) -> list[ItemName]:
        return [(advertisement, id_) for advertisement, ids in self._charges[sender].items() for id_ in ids]


class PendingMessages(Generic[Dependency, Owner, Item]):
    """At most `count` items and `size` bytes of one sender, `senders` senders, and `total` items; each for
    `keep_us`."""

    def __init__(self, *, count: int, size: int, senders: int, keep_us: int, total: int | None = None) -> None:
        self._total = count * senders if total is None else total
        if min(count, size, senders, keep_us, self._total) < 1:
            raise LocalError("there must be room for at least one item, for some time")
        self._count, self._size, self._senders_max, self._keep_us = count, size, senders, keep_us
        self._entries: dict[int, _PendingEntry[Dependency, Owner, Item]] = {}
        """Entries by sequence number, in the order of arrival."""
        self._of_dependency: dict[Dependency, dict[int, None]] = {}
        self._of_sender: dict[Owner, dict[int, None]] = {}
        self._sizes: Counter[Owner] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, dependency: Dependency, sender: Owner, item: Item, size: int, now: int) -> list[Item]:
        """Store an item. Returns the evicted items, or the item itself if it cannot be stored."""
        evicted = self.expire(now)
        if size > self._size or (sender not in self._of_sender and len(self._of_sender) >= self._senders_max):
            return [*evicted, item]
        self._number += 1
        self._entries[self._number] = _PendingEntry(dependency, sender, item, size, now + self._keep_us)
        self._of_dependency.setdefault(dependency, {})[self._number] = None
        numbers = self._of_sender.setdefault(sender, {})
        numbers[self._number] = None
        self._sizes[sender] += size
        while len(numbers) > self._count or self._sizes[sender] > self._size:
            evicted.append(self._pop(next(iter(numbers))).item)
        if len(self._entries) > self._total:
            most = max(self._of_sender.values(), key=len)
            evicted.append(self._pop(next(iter(most))).item)
        return evicted

    def take(self, dependency: Dependency) -> list[tuple[Owner, Item]]:
        """Remove and return all items for this dependency, in the order of arrival."""
        entries = [self._pop(number) for number in list(self._of_dependency.get(dependency, ()))]
        return [(entry.sender, entry.item) for entry in entries]

    def expire(self, now: int) -> list[Item]:
        """Remove and return the items past their deadline."""
        expired = []
        while self._entries and (first := next(iter(self._entries.items())))[1].deadline_us <= now:
            expired.append(self._pop(first[0]).item)
        return expired

    def _pop(self, number: int) -> _PendingEntry[Dependency, Owner, Item]:
        entry = self._entries.pop(number)
        _remove(self._of_dependency, entry.dependency, number)
        _remove(self._of_sender, entry.sender, number)
        self._sizes[entry.sender] -= entry.size
        if entry.sender not in self._of_sender:
            del self._sizes[entry.sender]
        return entry


class _PendingEntry(NamedTuple, Generic[Dependency, Owner, Item]):
    dependency: Dependency
    sender: Owner
    item: Item
    size: int
    deadline_us: int


class StoredDealing(NamedTuple):
    """An encoded dealt share, its advertisement, and its publisher's key."""

    dealt_share: Secret
    advertisement: bytes
    publisher: bytes


class UnstartedTransfers(Generic[Key]):
    """Per holder `each` transfers, and two dealings per transfer; `ready` active transfers."""

    def __init__(self, each: int, ready: int) -> None:
        self._each, self._active_max = each, ready
        self._dealings: dict[Key, dict[ReplicaId, dict[bytes, StoredDealing]]] = {}
        """Dealings by transfer, holder and name."""
        self._counts: Counter[ReplicaId] = Counter()
        self._active: dict[Key, None] = {}
        """Active transfers, the least recently changed first."""

    def __contains__(self, transfer: Key) -> bool:
        return transfer in self._dealings

    @property
    def inactive_count(self) -> int:
        return len(self._dealings) - len(self._active)

    def check_quota(self, transfer: Key, holder: ReplicaId) -> None:
        """Raise if this holder is at its quota, and the transfer is new for it."""
        if holder not in self._dealings.get(transfer, ()) and self._counts[holder] >= self._each:
            raise ExcessError("more unstarted transfers than an honest holder deals")

    def store(self, transfer: Key, holder: ReplicaId, name: bytes, dealing: StoredDealing) -> list[Key]:
        """Store a dealing. Returns the transfers that become inactive."""
        by_holder = self._dealings.setdefault(transfer, {})
        if holder not in by_holder:
            self._counts[holder] += 1
        dealings = by_holder.setdefault(holder, {})
        if len(dealings) < _DEALINGS_PER_HOLDER:
            dealings.setdefault(name, dealing)
        return self.activate(transfer)

    def activate(self, transfer: Key) -> list[Key]:
        """Make the transfer active. Returns the transfers that become inactive."""
        self._active.pop(transfer, None)
        self._active[transfer] = None
        deactivated = []
        while len(self._active) > self._active_max:
            deactivated.append(next(iter(self._active)))
            del self._active[deactivated[-1]]
        return deactivated

    def stored_dealings(self, transfer: Key) -> list[StoredDealing]:
        """The transfer's dealings in the order of arrival."""
        return [dealing for dealings in self._dealings[transfer].values() for dealing in dealings.values()]

    def remove(self, transfer: Key) -> None:
        """Remove the transfer: it has begun, or its key is no longer fresh."""
        self._active.pop(transfer, None)
        for holder in self._dealings.pop(transfer, ()):
            _decrement(self._counts, holder)


# --- claims that do not count yet -------------------------------------------------------------------------------------


class AwaitedClaims:
    """Claims of the own node's clients that siblings have and no client has sent here yet. Bounded: `most` of one
    sibling."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reported: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._reported.values()))

    def add(self, sibling: bytes, claim: bytes) -> None:
        claims = self._reported.setdefault(sibling, {})
        if len(claims) < self._most:
            claims[claim] = None

    def has_missing(self, has: Callable[[bytes], bool]) -> bool:
        """True if a claim is missing here. A claim that was here once is not asked for again."""
        for claims in self._reported.values():
            while claims and has(first := next(iter(claims))):
                del claims[first]
        return any(self._reported.values())

    def clear(self) -> None:
        self._reported.clear()


class UnmatchedSubscription(NamedTuple):
    """`reported` has the claim by the replica that reported it, because the proofs may differ."""

    reported: dict[bytes, Claim]
    hop: Address
    subject: Hashable

    @property
    def claim(self) -> Claim:
        return next(iter(self.reported.values()))


class UnmatchedSubscriptions:
    """Subscriptions whose proof matches no known advertisement, until one arrives or the subscription ends.

    Bounded: `most` of clients, and `most_of_node` of each neighbouring node.
    """

    def __init__(self, most: int, most_of_node: int) -> None:
        self._clients_max, self._node_max = most, most_of_node
        self._entries: dict[bytes, UnmatchedSubscription] = {}
        self._by_hop: dict[Address, dict[bytes, None]] = {}
        self._of_clients = 0
        self._by_subject: dict[Hashable, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._entries

    def get(self, id_: bytes) -> UnmatchedSubscription | None:
        return self._entries.get(id_)

    def with_subject(self, subject: Hashable) -> list[tuple[bytes, UnmatchedSubscription]]:
        """The subscriptions that an advertisement of this subject may match."""
        return [(id_, self._entries[id_]) for id_ in self._by_subject.get(subject, ())]

    def eviction_candidate(self, hop: Address) -> bytes | None:
        """The subscription to evict for one more of this hop; None if there is room."""
        own = self._by_hop.get(hop, {})
        if node_of_hop(hop) is not None:
            return next(iter(own)) if len(own) >= self._node_max else None
        if self._of_clients < self._clients_max:
            return None
        clients = (each for each in self._by_hop if node_of_hop(each) is None)
        fullest = max(clients, key=lambda each: len(self._by_hop[each]))
        return next(iter(self._by_hop[fullest] if len(self._by_hop[fullest]) > len(own) else own))

    def add(self, id_: bytes, entry: UnmatchedSubscription) -> None:
        self._entries[id_] = entry
        self._by_subject.setdefault(entry.subject, {})[id_] = None
        self._by_hop.setdefault(entry.hop, {})[id_] = None
        self._of_clients += node_of_hop(entry.hop) is None

    def pop(self, id_: bytes) -> UnmatchedSubscription | None:
        entry = self._entries.pop(id_, None)
        if entry is not None:
            _remove(self._by_subject, entry.subject, id_)
            _remove(self._by_hop, entry.hop, id_)
            self._of_clients -= node_of_hop(entry.hop) is None
        return entry


def _part(most: int) -> int:
    """The part of one publisher."""
    return max(1, most // _PARTS)


def _decrement(counts: Counter[Owner], owner: Owner) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]


def _remove(table: dict[Owner, dict[Key, None]], owner: Owner, key: Key) -> None:
    del table[owner][key]
    if not table[owner]:
        del table[owner]


_PARTS: Final = 4
"""With 1, a single publisher could fill a store. With each further part, one more Byzantine publisher is needed to fill
the store, and a busy publisher has less of it."""
_SCHEMES_KEPT: Final = 2
"""The current scheme of a node and the one before it: one order is carried out at a time (`operations.deployment`)."""
_DEALINGS_PER_HOLDER: Final = 2
"""The second dealing proves that a holder is Byzantine."""
