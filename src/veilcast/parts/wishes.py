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
class Wish:
    """What an owner wants, for all its subscriptions with this interest."""

    spelled: bytes
    topic: str
    interest: Conjunction
    readers: dict[int, None] = field(default_factory=dict)
    stands: bool = False
    """Whether its owner has been told that it gets what is published."""


class Wishes:
    """Bounded: `subscriptions_max` subscriptions; those with one interest are one wish."""

    def __init__(self, subscriptions_max: int) -> None:
        self._most = subscriptions_max
        self._wishes: dict[bytes, Wish] = {}
        self._numbers: dict[int, Wish] = {}
        self.news: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Wish]:
        return iter(self._wishes.values())

    def __contains__(self, wish: Wish) -> bool:
        return self._wishes.get(wish.spelled) is wish

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> Wish:
        if len(self._numbers) >= self._most:
            raise FullError(f"there are {self._most} subscriptions already; end one first")
        spelled = _ENCODER.encode((topic, interest.constraints))
        wish = self._wishes.setdefault(spelled, Wish(spelled, topic, interest))
        wish.readers[number] = None
        self._numbers[number] = wish
        self.news.append(Waiting(number, now if wish.stands else None))
        return wish

    def remove(self, number: int) -> Wish:
        """The wish that it was one of; without readers, it is none any more."""
        wish = self._numbers.pop(number, None)
        if wish is None:
            raise LocalError(f"there is no subscription {number}")
        del wish.readers[number]
        if not wish.readers:
            del self._wishes[wish.spelled]
        return wish

    def stand(self, wish: Wish, now: int) -> None:
        """From now on it gets what is published."""
        if not wish.stands:
            wish.stands = True
            self.news += [Waiting(number, now) for number in wish.readers]


_ENCODER: Final = msgspec.msgpack.Encoder()
