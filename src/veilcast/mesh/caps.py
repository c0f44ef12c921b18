"""Caps: no neighbour gets more than its share of a table (the switch `caps`).

A bound on a table alone invites the greedy: who fills it shuts everybody else out, or pushes them out. With a share for
each neighbour, one that wants too much pays with what it brought itself, the oldest first. A `Ledger` knows who brought
what. A queue has no shares: when it is full, whoever made most of it wait there loses its oldest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from veilcast.machine import Address
from veilcast.mesh.config import Config

T = TypeVar("T", bound=Hashable)


class Shares(NamedTuple):
    """How much one neighbour may bring; without caps, as much as the tables hold."""

    origins: int
    """Of one topic."""
    chains: int
    branches: int


def shares_of(config: Config) -> Shares:
    if not config.defences.caps:
        return Shares(_UNLIMITED, _UNLIMITED, _UNLIMITED)
    return Shares(config.defences.origins_each, config.defences.chains_each, config.defences.branches_each)


class Ledger(Generic[T]):
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

    def excess(self, neighbour: Address, share: int) -> T | None:
        """The oldest of what it brought, if that is more than its share."""
        entries = self._brought.get(neighbour, {})
        return next(iter(entries)) if len(entries) > share else None


class Backlog(Protocol):
    """What waits for one neighbour, oldest first. A `deque` is one."""

    def append(self, data: bytes, /) -> None: ...

    def popleft(self) -> bytes: ...

    def __getitem__(self, place: int, /) -> bytes: ...

    def __len__(self) -> int: ...


class Backlogs:
    """Makes the queues of a node. `blaming` says whom to blame for what is queued meanwhile; else it is ourselves."""

    def __init__(self, config: Config) -> None:
        self._fair = config.defences.caps
        self._blamed: Address | None = None

    def make(self, size: int) -> Backlog:
        return FairQueue(size, lambda: self._blamed) if self._fair else plain_queue(size)

    @contextmanager
    def blaming(self, neighbour: Address) -> Iterator[None]:
        self._blamed = neighbour
        try:
            yield
        finally:
            self._blamed = None


def plain_queue(size: int) -> Backlog:
    """When it is full, the oldest is dropped, whoever made it wait there."""
    return deque(maxlen=size)


class FairQueue:
    """A `Backlog` of at most `size`; when it is full, the oldest of whoever has most in it is dropped."""

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
