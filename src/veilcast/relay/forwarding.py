"""What passes through a proxy: requests to the server, messages to clients, and the batches that they leave in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeAlias, TypeVar

from veilcast.machine import Address
from veilcast.wire.base import Message
from veilcast.wire.relay import EnrolClient, Lease, LeaseAhead, Release, Resume, Submit

ClientRequest: TypeAlias = EnrolClient | Lease | LeaseAhead | Release | Resume | Submit


@dataclass(slots=True)
class ForwardedRequest:
    """A request at the server, and the client it belongs to."""

    client: Address
    request: ClientRequest
    pseudonym: bytes
    until_us: int


@dataclass(slots=True)
class Question:
    """A request of the proxy's own, about a lease."""

    pseudonym: bytes
    until_us: int


@dataclass(slots=True)
class Upward:
    """A message to the server, built when it leaves, under the number it leaves with."""

    build: Callable[[int], Message]
    forwarded: ForwardedRequest | Question | None = None


@dataclass(slots=True)
class Downward:
    client: Address
    message: Message


Item = TypeVar("Item")


class Batch(Generic[Item]):
    """Messages that arrive within a time window and leave together, in random order.

    An observer of both sides of a proxy links incoming to outgoing messages by time and order. A batch hides both, up
    to its size: the sender of one of n messages is one of n. A batch does not protect against an observer of many
    batches (statistical disclosure; `experiments/relay-attacks`). Bounded: a batch of `most` items is released at once.
    """

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
