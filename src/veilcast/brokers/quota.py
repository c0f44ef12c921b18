"""Room: what is on its way through a broker, and what was lately, so much of each publisher and in all.

Pure bookkeeping. What is over stays known for a while, so that a repeat is known for one. What was refused for want of
room is known like that, too: a part that we dropped must not look, when room is left again, as if it had not come.
A publisher that fills its own part of the room is refused for as long as that takes; others are not.

What is left alone on the word of a replica, which may have made it up, is kept apart (`IgnoredItems`): it takes up
nobody's
room but that replica's own.


Holds: what each replica of a node has brought that is of no use yet, and that it answers for.

Pure. What a replica brings is signed by its publisher, but may be of long ago: nobody can tell what is repeated from
what is new until others bring it, too, or what it lacks. So the room is parted among the replicas. A thing stays as
long as one of those who brought it holds it; who brings more than its part lets go of its own oldest, of the
advertisement that it holds most of. So liars, however many, and even if they repeat the same, push out nothing that an
honest replica holds, nor does a publisher that floods push out what others publish.


Early: messages that came before what they belong to is known here. Kept by sender, so much of each, for a while.

Pure. Links keep the order of what one peer sends, not of what several do: a replica hears of a hop before its own
portions come, or gets a portion before enough neighbours have told it of the advertisement. Of each sender the oldest
goes when there is too much, and the caller is told. When there is too much of all together, who has most loses its
oldest.


Hops that were opened and have not begun: what was dealt of them waits, so much of each holder.

Pure bookkeeping. Who refuses what an honest holder deals, or loses it, will say that it lacks it, and the holder shows
it to liars. No time is safe after which it could go: a holder may be absent, so that liars are needed for a hop to
begin, and they deal when they like. And a publisher that lies can have honest holders deal what nobody else does.

So there is room for whatever an honest holder can deal. That holder remembers (`room`) as many passages as `done_max`,
each for longer than its key is fresh here, and takes up no more. Who has dealt more than that lies: nothing is lost
with what it deals, for liars have it already. All brokers of an overlay must have the same `done_max` for that.

So many hops would not fit if all of them were ready to begin. Those that changed last are. Of the others only what was
dealt stays, two kilobytes of each as a rule, and is checked again when it is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError, LocalError, StaleError

ItemName: TypeAlias = tuple[bytes, bytes]
"""A key or a content: the advertisement that it is under, and its id there."""


class ReplicaQuota:
    """Bounded: `most` by the replicas of one scheme together (one each, if they are more), and of each node the two
    newest schemes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[ReplicaId, dict[bytes, dict[bytes, None]]] = {}
        """Of each replica, by advertisement; the oldest first."""
        self._holders: dict[ItemName, dict[ReplicaId, None]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def charge(self, name: ItemName, bearer: ReplicaId) -> list[ItemName]:
        """It has brought something of this just now; what nobody holds any more for that."""
        self._holders.setdefault(name, {})[bearer] = None
        own = self._held.setdefault(bearer, {})
        under = own.setdefault(name[0], {})
        under.pop(name[1], None)
        under[name[1]] = None
        over = [(other, held) for other in self._past(bearer) for held in self._all_of(other)]
        if sum(map(len, own.values())) > max(1, self._most // bearer.scheme.size):
            fullest = max(own, key=lambda advert: len(own[advert]))
            over.append((bearer, (fullest, next(iter(own[fullest])))))
        return [held for other, held in over if self._let_go(other, held)]

    def release(self, name: ItemName) -> None:
        """It has come to something, or to nothing."""
        for bearer in list(self._holders.get(name, ())):
            self._let_go(bearer, name)

    def _let_go(self, bearer: ReplicaId, name: ItemName) -> bool:
        """Whether nobody holds it any more."""
        advert, id_ = name
        own = self._held[bearer]
        del own[advert][id_]
        if not own[advert]:
            del own[advert]
        if not own:
            del self._held[bearer]
        del self._holders[name][bearer]
        if self._holders[name]:
            return False
        del self._holders[name]
        return True

    def _past(self, bearer: ReplicaId) -> list[ReplicaId]:
        """Other replicas of its node as that was, and is no more."""
        alike = [other for other in self._held if other.scheme.node == bearer.scheme.node]
        stand = sorted({other.scheme for other in alike})[-_SCHEMES_KEPT:]
        return [other for other in alike if other.scheme not in stand and other != bearer]

    def _all_of(self, bearer: ReplicaId) -> list[ItemName]:
        return [(advert, id_) for advert, ids in self._held[bearer].items() for id_ in ids]


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
    """At most `count` things and `size` bytes of one sender, of `senders` senders, for `keep_us`; `total` things."""

    def __init__(self, *, count: int, size: int, senders: int, keep_us: int, total: int | None = None) -> None:
        self._total = count * senders if total is None else total
        if min(count, size, senders, keep_us, self._total) < 1:
            raise LocalError("there is room for at least one thing, for a while")
        self._count, self._size, self._most, self._keep_us = count, size, senders, keep_us
        self._entries: dict[int, _PendingEntry[Dependency, Sender, Item]] = {}
        """In the order they came, under numbers."""
        self._of_key: dict[Dependency, dict[int, None]] = {}
        self._of_sender: dict[Sender, dict[int, None]] = {}
        self._sizes: Counter[Sender] = Counter()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: Dependency, sender: Sender, what: Item, size: int, now: int) -> list[Item]:
        """What had to go instead, or this very thing if there is no room for it."""
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
        """All that belongs to this, in the order it came; it is gone then."""
        entries = [self._remove(number) for number in list(self._of_key.get(key, ()))]
        return [(entry.sender, entry.item) for entry in entries]

    def expire(self, now: int) -> list[Item]:
        """What nobody came for."""
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
    """A portion, encoded; what it is for, and whose key it is of."""

    dealt_share: Secret
    advertisement: bytes
    publisher: bytes


class UnstartedTransfers(Generic[Transfer]):
    """Of each holder `each` hops, and two portions of each hop; `ready` hops that are not folded."""

    def __init__(self, each: int, ready: int) -> None:
        self._each, self._most = each, ready
        self._kept: dict[Transfer, dict[ReplicaId, dict[bytes, StoredDealing]]] = {}
        """By hop, holder and name of the dealing."""
        self._counts: Counter[ReplicaId] = Counter()
        self._ready: dict[Transfer, None] = {}
        """The one that has not changed for longest comes first."""

    def __contains__(self, key: Transfer) -> bool:
        return key in self._kept

    @property
    def inactive_count(self) -> int:
        return len(self._kept) - len(self._ready)

    def check_quota(self, key: Transfer, holder: ReplicaId) -> None:
        """Raise unless there is room for what this holder deals."""
        if holder not in self._kept.get(key, ()) and self._counts[holder] >= self._each:
            raise ExcessError("no honest holder deals so much that does not begin")

    def store(self, key: Transfer, holder: ReplicaId, name: bytes, kept: StoredDealing) -> list[Transfer]:
        """The hops that are folded for it."""
        dealt = self._kept.setdefault(key, {})
        if holder not in dealt:
            self._counts[holder] += 1
        faces = dealt.setdefault(holder, {})
        if len(faces) < _DEALINGS_PER_HOLDER:
            faces.setdefault(name, kept)
        return self.activate(key)

    def activate(self, key: Transfer) -> list[Transfer]:
        """It is ready again; the hops that are folded for it."""
        self._ready.pop(key, None)
        self._ready[key] = None
        folded = []
        while len(self._ready) > self._most:
            folded.append(next(iter(self._ready)))
            del self._ready[folded[-1]]
        return folded

    def stored_dealings(self, key: Transfer) -> list[StoredDealing]:
        """In the order it came."""
        return [kept for faces in self._kept[key].values() for kept in faces.values()]

    def remove(self, key: Transfer) -> None:
        """It has begun, or its key is no longer fresh."""
        self._ready.pop(key, None)
        for holder in self._kept.pop(key, ()):
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]


_DEALINGS_PER_HOLDER: Final = 2
"""The second one shows that a holder lies."""

Key = TypeVar("Key", bound=Hashable)


class PublisherQuota(Generic[Key]):
    """For `active` things at a time and `past` ones for `keep_us` each; of one publisher, a quarter of both."""

    def __init__(self, active: int, past: int, keep_us: int) -> None:
        if active < 1 or past < 1:
            raise LocalError("there is room for at least one thing")
        self._most, self._most_past, self._keep_us = active, past, keep_us
        self._active: dict[Key, bytes] = {}
        self._past: dict[Key, tuple[bytes, int]] = {}
        self._counts: Counter[bytes] = Counter()
        self._past_counts: Counter[bytes] = Counter()
        self._muted: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._active)

    @property
    def past_count(self) -> int:
        return len(self._past)

    def is_past(self, key: Key, now: int) -> bool:
        self._sweep(now)
        return key in self._past

    def admit(self, key: Key, publisher: bytes, now: int) -> None:
        """Raises for what is over, or has no room; then it is over, too."""
        if self.is_past(key, now):
            raise StaleError("this is over here")
        if key in self._active:
            return
        full = len(self._active) >= self._most or self._counts[publisher] >= _publisher_part(self._most)
        if full or self._past_full(publisher) or now < self._muted.get(publisher, 0):
            self.reject(key, publisher, now)
            raise ExcessError("no room for more, or for more of this publisher's")
        self._active[key] = publisher
        self._counts[publisher] += 1

    def finish(self, key: Key, now: int) -> None:
        """It is over."""
        publisher = self._active.pop(key, None)
        if publisher is None:
            return
        self._counts[publisher] -= 1
        if not self._counts[publisher]:
            del self._counts[publisher]
        self._remember(key, publisher, now)

    def reject(self, key: Key, publisher: bytes, now: int) -> None:
        """It is over before it began."""
        self._sweep(now)
        if key in self._active or key in self._past:
            return
        if not self._past_full(publisher):
            self._remember(key, publisher, now)
        elif publisher in self._muted or len(self._muted) < self._most:
            self._muted[publisher] = now + self._keep_us

    def _remember(self, key: Key, publisher: bytes, now: int) -> None:
        self._past[key] = (publisher, now + self._keep_us)
        self._past_counts[publisher] += 1

    def _past_full(self, publisher: bytes) -> bool:
        """What is active will be past one day, so it counts."""
        everything = len(self._past) + len(self._active)
        return everything >= self._most_past or self._past_counts[publisher] >= _publisher_part(self._most_past)

    def _sweep(self, now: int) -> None:
        while self._past and (first := next(iter(self._past.items())))[1][1] <= now:
            key, (publisher, _) = first
            del self._past[key]
            self._past_counts[publisher] -= 1
            if not self._past_counts[publisher]:
                del self._past_counts[publisher]
        for publisher in [each for each, until in self._muted.items() if until <= now]:
            del self._muted[publisher]


class IgnoredItems(Generic[Key]):
    """Left alone for `keep_us`: of each replica that brings such things, by its key, `each` of them.

    Of all together as many as there are such replicas: a limit that they share could be used up by a few.
    """

    def __init__(self, each: int, keep_us: int) -> None:
        self._each, self._keep_us = each, keep_us
        self._until: dict[Key, tuple[bytes, int]] = {}
        self._counts: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key: Key, bearer: bytes, now: int) -> None:
        """Or not, if there is no room left for what its bearer brings: nobody honest brings so much."""
        if not self.contains(key, now) and self._counts[bearer] < self._each:
            self._until[key] = (bearer, now + self._keep_us)
            self._counts[bearer] += 1

    def contains(self, key: Key, now: int) -> bool:
        while self._until and (first := next(iter(self._until.items())))[1][1] <= now:
            del self._until[first[0]]
            bearer = first[1][0]
            self._counts[bearer] -= 1
            if not self._counts[bearer]:
                del self._counts[bearer]
        return key in self._until


def _publisher_part(most: int) -> int:
    return max(1, most // _PARTS)


_PARTS: Final = 4
