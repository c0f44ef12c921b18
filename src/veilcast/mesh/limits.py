"""Limits for each neighbour: shares of tables, fair queues and message rates (the switches `caps` and `buckets`).

A bound on a table alone helps a greedy neighbour: it fills the table, and the others are refused or evicted. With a
share for each neighbour, a neighbour over its share loses its own oldest entry. `PeerQuota` records which
neighbour brought what. A queue has no shares: when it is full, the neighbour with the most entries in it loses its
oldest.

`NeighbourRateLimits` limits messages. Most of them come in heartbeats, one in each period, so honest neighbours are
slow. But a misbehaving neighbour could send a thousand heartbeats a second, each of which costs checks, table entries
and copies for all our neighbours, or as many notifications and stems, each of which costs the check of a signature.
Messages over a burst and a sustained rate are refused unread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from veilcast.core.rate_limit import PeerRateLimits, Rate
from veilcast.errors import ExcessError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig, MessageRate
from veilcast.wire.base import Message
from veilcast.wire.mesh import (
    Advert,
    Call,
    Decline,
    Greet,
    Invite,
    Notify,
    Stem,
    Subscribe,
    Surroundings,
    SwapAsk,
    SwapLock,
    Unadvert,
    Unsubscribe,
)


class NeighbourShares(NamedTuple):
    """Table entries that one neighbour may bring; without `caps`, as many as the tables hold."""

    origins: int
    """Origins of one topic."""
    chains: int
    branches: int


def neighbour_shares(config: MeshConfig) -> NeighbourShares:
    if not config.defences.caps:
        return NeighbourShares(_UNLIMITED, _UNLIMITED, _UNLIMITED)
    return NeighbourShares(config.defences.origins_each, config.defences.chains_each, config.defences.branches_each)


class NeighbourQueue(Protocol):
    """Messages that wait for one neighbour, oldest first. A `deque` is one."""

    def append(self, data: bytes, /) -> None: ...

    def popleft(self) -> bytes: ...

    def __getitem__(self, place: int, /) -> bytes: ...

    def __len__(self) -> int: ...


class NeighbourQueues:
    """Makes the queues of a node. `charging` names the neighbour to charge for messages queued meanwhile; otherwise the
    node itself."""

    def __init__(self, config: MeshConfig) -> None:
        self._fair = config.defences.caps
        self._charged: Address | None = None

    def make(self, size: int) -> NeighbourQueue:
        return FairQueue(size, lambda: self._charged) if self._fair else make_plain_queue(size)

    @contextmanager
    def charging(self, neighbour: Address) -> Iterator[None]:
        self._charged = neighbour
        try:
            yield
        finally:
            self._charged = None


def make_plain_queue(size: int) -> NeighbourQueue:
    """When full, the oldest message is dropped, whichever neighbour caused it."""
    return deque(maxlen=size)


class FairQueue:
    """A `NeighbourQueue` of at most `size`. When full, the oldest message of the neighbour with the most entries is
    dropped."""

    def __init__(self, size: int, charged: Callable[[], Address | None]) -> None:
        self._size, self._charged = size, charged
        self._waiting: dict[int, tuple[bytes, Address | None]] = {}
        self._numbers: dict[Address | None, deque[int]] = {}
        self._last = 0

    def append(self, data: bytes) -> None:
        if len(self._waiting) >= self._size:
            largest = max(self._numbers, key=lambda name: len(self._numbers[name]))
            del self._waiting[self._next_of(largest)]
        charged = self._charged()
        self._last += 1
        self._waiting[self._last] = (data, charged)
        self._numbers.setdefault(charged, deque()).append(self._last)

    def popleft(self) -> bytes:
        data, charged = self._waiting.pop(next(iter(self._waiting)))
        self._next_of(charged)
        return data

    def __getitem__(self, place: int) -> bytes:
        if place != 0:
            raise IndexError("only the oldest can be looked at")
        return self._waiting[next(iter(self._waiting))][0]

    def __len__(self) -> int:
        return len(self._waiting)

    def _next_of(self, charged: Address | None) -> int:
        numbers = self._numbers[charged]
        number = numbers.popleft()
        if not numbers:
            del self._numbers[charged]
        return number


class NeighbourRateLimits:
    """A rate for each neighbour and kind. Bounded: the last heard neighbours, four times `neighbours_max`."""

    def __init__(self, config: MeshConfig) -> None:
        defences = config.defences
        rates: dict[str, MessageRate] = {kind: getattr(defences, kind) for kind in _KINDS} if defences.buckets else {}
        self._limits: PeerRateLimits[Address] = PeerRateLimits(
            4 * config.neighbours_max,
            {kind: Rate(max(1, config.heartbeat_us // rate.per_period), rate.burst) for kind, rate in rates.items()},
        )

    def __len__(self) -> int:
        return len(self._limits)

    def charge(self, message: Message, source: Address, now: int) -> None:
        """Raise `ExcessError` if this neighbour is over its rate for this kind."""
        kind = _KIND_OF.get(type(message))
        if kind is not None and not self._limits.take(source, kind, now):
            raise ExcessError(f"more {kind} than we take from one neighbour")


_KINDS: Final[dict[str, tuple[type[Message], ...]]] = {
    "adverts": (Advert, Unadvert, Call),
    "subscriptions": (Subscribe, Unsubscribe, Invite, Decline),
    "swaps": (SwapAsk, SwapLock, Surroundings),
    "greetings": (Greet,),
    "notes": (Notify,),
    "stems": (Stem,),
}
"""Answers in a swap and along a stem are not counted: unrequested ones are refused anyway."""
_KIND_OF: Final = {message: kind for kind, messages in _KINDS.items() for message in messages}
_UNLIMITED: Final = 1 << 62
