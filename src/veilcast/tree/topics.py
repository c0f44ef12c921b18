"""The topics that a node has keys for, epoch by epoch, and the wishes of its owner for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.errors import LocalError
from veilcast.machine import Waiting
from veilcast.topics import Conjunction
from veilcast.tree.config import TreeConfig
from veilcast.tree.profile import Wish


class Topics:
    """Bounded: the keys of `AT_HAND_MAX` epochs."""

    def __init__(self, config: TreeConfig, keyring: Keyring) -> None:
        self._config, self._keyring = config, keyring
        self._at_hand: dict[int, EpochKeys] = {}

    def epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def keys(self, topic: str, epoch: int) -> TopicKeys:
        """`LocalError` where no grant reaches so far, or the topic is of another profile."""
        if epoch not in self._at_hand:
            while len(self._at_hand) >= AT_HAND_MAX:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[epoch] = self._keyring.at(epoch)
        keys = self._at_hand[epoch].topic(topic)
        if keys.record.profile != self._config.profile:
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this node is of the other")
        return keys


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
            raise LocalError(f"there are {self._most} subscriptions already; end one first")
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


AT_HAND_MAX: Final = 16
"""Epochs whose keys are kept at hand: to look them up checks the signature of every grant."""
_ENCODER: Final = msgspec.msgpack.Encoder()
