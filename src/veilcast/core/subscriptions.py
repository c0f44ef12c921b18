"""Wishes: what the owner of a member has subscribed to, each interest once, and when it was told that it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from veilcast.errors import FullError, LocalError
from veilcast.machine import Waiting
from veilcast.topics import Conjunction


@dataclass(slots=True, eq=False)
class SharedInterest:
    """What an owner wants, for all its subscriptions with this interest."""

    key: bytes
    topic: str
    interest: Conjunction
    numbers: dict[int, None] = field(default_factory=dict)
    is_active: bool = False
    """Whether its owner has been told that it gets what is published."""


class Subscriptions:
    """Bounded: `subscriptions_max` subscriptions; those with one interest are one wish."""

    def __init__(self, subscriptions_max: int) -> None:
        self._most = subscriptions_max
        self._wishes: dict[bytes, SharedInterest] = {}
        self._numbers: dict[int, SharedInterest] = {}
        self.notices: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[SharedInterest]:
        return iter(self._wishes.values())

    def __contains__(self, wish: SharedInterest) -> bool:
        return self._wishes.get(wish.key) is wish

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> SharedInterest:
        if len(self._numbers) >= self._most:
            raise FullError(f"there are {self._most} subscriptions already; end one first")
        spelled = _ENCODER.encode((topic, interest.constraints))
        wish = self._wishes.setdefault(spelled, SharedInterest(spelled, topic, interest))
        wish.numbers[number] = None
        self._numbers[number] = wish
        self.notices.append(Waiting(number, now if wish.is_active else None))
        return wish

    def remove(self, number: int) -> SharedInterest:
        """The wish that it was one of; without readers, it is none any more."""
        wish = self._numbers.pop(number, None)
        if wish is None:
            raise LocalError(f"there is no subscription {number}")
        del wish.numbers[number]
        if not wish.numbers:
            del self._wishes[wish.key]
        return wish

    def activate(self, wish: SharedInterest, now: int) -> None:
        """From now on it gets what is published."""
        if not wish.is_active:
            wish.is_active = True
            self.notices += [Waiting(number, now) for number in wish.numbers]


_ENCODER: Final = msgspec.msgpack.Encoder()
