"""Caps: no neighbour gets more than its share of a table (the switch `caps`).

A bound on a table alone invites the greedy: who fills it shuts everybody else out, or pushes them out. With a share for
each neighbour, one that wants too much pays with what it brought itself, the oldest first. A `NeighbourQuota` knows who
brought
what. A queue has no shares: when it is full, whoever made most of it wait there loses its oldest.


Buckets: how much of each kind of message is taken from one neighbour (the switch `buckets`).

Most of it rides in heartbeats, one in each period, so honest neighbours are slow by themselves; but nothing keeps
another from sending a thousand heartbeats a second, each of which costs us checks, tables and copies for all our
neighbours, or as many notes and stems, each of which costs the check of a signature. What is past a burst and a steady
rate is refused unread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from veilcast.core.rate_limit import TokenBucket
from veilcast.errors import ExcessError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig, MessageRate
from veilcast.wire.mesh import (
    Advert,
    Call,
    Decline,
    Greet,
    Invite,
    Message,
    Notify,
    Stem,
    Subscribe,
    SwapAsk,
    SwapLock,
    Unadvert,
    Unsubscribe,
)


class NeighbourRateLimits:
    """One for each neighbour and kind; of the neighbours last heard, as many as we could have four times over."""

    def __init__(self, config: MeshConfig) -> None:
        self._names_max, self._period_us = 4 * config.neighbours_max, config.heartbeat_us
        self._rates = {name: getattr(config.defences, name) for name in _KINDS} if config.defences.buckets else {}
        self._buckets: dict[Address, dict[str, TokenBucket]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, message: Message, source: Address, now: int) -> None:
        """Raise `ExcessError` if this neighbour has sent more of the kind than we take."""
        kind = _KIND_OF.get(type(message))
        if kind is None or kind not in self._rates:
            return
        buckets = self._buckets.pop(source, None) or self._new()
        self._buckets[source] = buckets
        if len(self._buckets) > self._names_max:
            del self._buckets[next(iter(self._buckets))]
        if not buckets[kind].take(now):
            raise ExcessError(f"more {kind} than we take from one neighbour")

    def _new(self) -> dict[str, TokenBucket]:
        return {kind: self._bucket(rate) for kind, rate in self._rates.items()}

    def _bucket(self, rate: MessageRate) -> TokenBucket:
        return TokenBucket(max(1, self._period_us // rate.per_period), rate.burst)


_KINDS: Final[dict[str, tuple[type[Message], ...]]] = {
    "adverts": (Advert, Unadvert, Call),
    "subscriptions": (Subscribe, Unsubscribe, Invite, Decline),
    "swaps": (SwapAsk, SwapLock),
    "greetings": (Greet,),
    "notes": (Notify,),
    "stems": (Stem,),
}
"""Answers in a swap and along a stem are not counted: those that nobody asked for are refused anyway."""
_KIND_OF: Final = {message: kind for kind, messages in _KINDS.items() for message in messages}

T = TypeVar("T", bound=Hashable)


class NeighbourShares(NamedTuple):
    """How much one neighbour may bring; without caps, as much as the tables hold."""

    origins: int
    """Of one topic."""
    chains: int
    branches: int


def neighbour_shares(config: MeshConfig) -> NeighbourShares:
    if not config.defences.caps:
        return NeighbourShares(_UNLIMITED, _UNLIMITED, _UNLIMITED)
    return NeighbourShares(config.defences.origins_each, config.defences.chains_each, config.defences.branches_each)


class NeighbourQuota(Generic[T]):
    """What each neighbour brought, in that order. Bounded by the table that it is about."""

    def __init__(self) -> None:
        self._brought: dict[Address, dict[T, None]] = {}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._brought.values())

    def add(self, neighbour: Address, entry: T) -> None:
        """Nothing changes if it has brought this already."""
        self._brought.setdefault(neighbour, {})[entry] = None

    def discard(self, neighbour: Address, entry: T) -> None:
        entries = self._brought.get(neighbour)
        if entries is not None:
            entries.pop(entry, None)
            if not entries:
                del self._brought[neighbour]

    def find_excess(self, neighbour: Address, share: int) -> T | None:
        """The oldest of what it brought, if that is more than its share."""
        entries = self._brought.get(neighbour, {})
        return next(iter(entries)) if len(entries) > share else None


class NeighbourQueue(Protocol):
    """What waits for one neighbour, oldest first. A `deque` is one."""

    def append(self, data: bytes, /) -> None: ...

    def popleft(self) -> bytes: ...

    def __getitem__(self, place: int, /) -> bytes: ...

    def __len__(self) -> int: ...


class NeighbourQueues:
    """Makes the queues of a node. `charging` says whom to blame for what is queued meanwhile; else it is ourselves."""

    def __init__(self, config: MeshConfig) -> None:
        self._fair = config.defences.caps
        self._blamed: Address | None = None

    def make(self, size: int) -> NeighbourQueue:
        return FairQueue(size, lambda: self._blamed) if self._fair else make_plain_queue(size)

    @contextmanager
    def charging(self, neighbour: Address) -> Iterator[None]:
        self._blamed = neighbour
        try:
            yield
        finally:
            self._blamed = None


def make_plain_queue(size: int) -> NeighbourQueue:
    """When it is full, the oldest is dropped, whoever made it wait there."""
    return deque(maxlen=size)


class FairQueue:
    """A `NeighbourQueue` of at most `size`; when it is full, the oldest of whoever has most in it is dropped."""

    def __init__(self, size: int, blamed: Callable[[], Address | None]) -> None:
        self._size, self._blamed = size, blamed
        self._waiting: dict[int, tuple[bytes, Address | None]] = {}
        self._numbers: dict[Address | None, deque[int]] = {}
        self._last = 0

    def append(self, data: bytes) -> None:
        if len(self._waiting) >= self._size:
            greediest = max(self._numbers, key=lambda name: len(self._numbers[name]))
            del self._waiting[self._next_of(greediest)]
        blamed = self._blamed()
        self._last += 1
        self._waiting[self._last] = (data, blamed)
        self._numbers.setdefault(blamed, deque()).append(self._last)

    def popleft(self) -> bytes:
        data, blamed = self._waiting.pop(next(iter(self._waiting)))
        self._next_of(blamed)
        return data

    def __getitem__(self, place: int) -> bytes:
        if place != 0:
            raise IndexError("only the oldest can be looked at")
        return self._waiting[next(iter(self._waiting))][0]

    def __len__(self) -> int:
        return len(self._waiting)

    def _next_of(self, blamed: Address | None) -> int:
        numbers = self._numbers[blamed]
        number = numbers.popleft()
        if not numbers:
            del self._numbers[blamed]
        return number


_UNLIMITED: Final = 1 << 62
