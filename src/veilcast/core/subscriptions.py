"""The subscriptions of a member's client, grouped by interest, and when each of them began to get what is published."""

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
    """One interest in one topic, and all subscriptions that have it."""

    key: bytes
    """The encoding of topic and interest."""
    topic: str
    interest: Conjunction
    numbers: dict[int, None] = field(default_factory=dict)
    """The numbers of the subscriptions."""
    is_active: bool = False
    """True once the client was told that these subscriptions get what is published."""


class Subscriptions:
    """At most `subscriptions_max` subscriptions; iterates over their interests, each once."""

    def __init__(self, subscriptions_max: int) -> None:
        self._subscriptions_max = subscriptions_max
        self._interests: dict[bytes, SharedInterest] = {}
        self._by_number: dict[int, SharedInterest] = {}
        self.notices: list[Waiting] = []
        """Events for the client."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[SharedInterest]:
        return iter(self._interests.values())

    def __contains__(self, shared: SharedInterest) -> bool:
        return self._interests.get(shared.key) is shared

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> SharedInterest:
        """Add a subscription. Raises `FullError` if there are `subscriptions_max` of them."""
        if len(self._by_number) >= self._subscriptions_max:
            raise FullError(f"there are {self._subscriptions_max} subscriptions already; end one first")
        key = _ENCODER.encode((topic, interest.constraints))
        shared = self._interests.setdefault(key, SharedInterest(key, topic, interest))
        shared.numbers[number] = None
        self._by_number[number] = shared
        self.notices.append(Waiting(number, now if shared.is_active else None))
        return shared

    def remove(self, number: int) -> SharedInterest:
        """Remove a subscription, and return its interest. If no other subscription has the interest, it is gone."""
        shared = self._by_number.pop(number, None)
        if shared is None:
            raise LocalError(f"there is no subscription {number}")
        del shared.numbers[number]
        if not shared.numbers:
            del self._interests[shared.key]
        return shared

    def activate(self, shared: SharedInterest, now: int) -> None:
        """Tell the client that from now on the subscriptions with this interest get what is published."""
        if not shared.is_active:
            shared.is_active = True
            self.notices += [Waiting(number, now) for number in shared.numbers]


_ENCODER: Final = msgspec.msgpack.Encoder()
