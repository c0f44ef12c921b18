"""Room: what is on its way through a broker, and what was lately, so much of each publisher and in all.

Pure bookkeeping. What is over stays known for a while, so that a repeat is known for one. What was refused for want of
room is known like that, too: a part that we dropped must not look, when room is left again, as if it had not come.
A publisher that fills its own part of the room is refused for as long as that takes; others are not.

What is left alone on the word of a replica, which may have made it up, is kept apart (`Shunned`): it takes up nobody's
room but that replica's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from veilcast.errors import ExcessError, LocalError, StaleError

Key = TypeVar("Key", bound=Hashable)


class Room(Generic[Key]):
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
    def remembered(self) -> int:
        return len(self._past)

    def is_past(self, key: Key, now: int) -> bool:
        self._sweep(now)
        return key in self._past

    def enter(self, key: Key, publisher: bytes, now: int) -> None:
        """Raises for what is over, or has no room; then it is over, too."""
        if self.is_past(key, now):
            raise StaleError("this is over here")
        if key in self._active:
            return
        full = len(self._active) >= self._most or self._counts[publisher] >= _part(self._most)
        if full or self._past_full(publisher) or now < self._muted.get(publisher, 0):
            self.shun(key, publisher, now)
            raise ExcessError("no room for more, or for more of this publisher's")
        self._active[key] = publisher
        self._counts[publisher] += 1

    def leave(self, key: Key, now: int) -> None:
        """It is over."""
        publisher = self._active.pop(key, None)
        if publisher is None:
            return
        self._counts[publisher] -= 1
        if not self._counts[publisher]:
            del self._counts[publisher]
        self._remember(key, publisher, now)

    def shun(self, key: Key, publisher: bytes, now: int) -> None:
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
        return everything >= self._most_past or self._past_counts[publisher] >= _part(self._most_past)

    def _sweep(self, now: int) -> None:
        while self._past and (first := next(iter(self._past.items())))[1][1] <= now:
            key, (publisher, _) = first
            del self._past[key]
            self._past_counts[publisher] -= 1
            if not self._past_counts[publisher]:
                del self._past_counts[publisher]
        for publisher in [each for each, until in self._muted.items() if until <= now]:
            del self._muted[publisher]


class Shunned(Generic[Key]):
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
        if not self.has(key, now) and self._counts[bearer] < self._each:
            self._until[key] = (bearer, now + self._keep_us)
            self._counts[bearer] += 1

    def has(self, key: Key, now: int) -> bool:
        while self._until and (first := next(iter(self._until.items())))[1][1] <= now:
            del self._until[first[0]]
            bearer = first[1][0]
            self._counts[bearer] -= 1
            if not self._counts[bearer]:
                del self._counts[bearer]
        return key in self._until


def _part(most: int) -> int:
    return max(1, most // _PARTS)


_PARTS: Final = 4
