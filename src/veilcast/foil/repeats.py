"""Repeats: which absences of readers have been answered, and which must be once more.

Of one session. What was asked for gathers, and all of it is answered at once, so that many readers who come back
together are one round. A round is answered when the broker has acknowledged all of it and has had `settle_us` to bring
it on. If the session loses its broker before, it may have died with it: the absences of that round are as good as never
answered, and readers will name them again.

Nobody knows whose an absence is, and one member can make up as many as it likes. So there is no quota for a member but
one for each event (`Pace`): it is repeated after pauses that double, up to sixteen times the first. And no round begins
while one is under way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from veilcast.foil.requests import Absence


class Repeats:
    """Bounded: `requests_max` absences that were answered; of what was asked for, as many."""

    def __init__(self, requests_max: int, settle_us: int) -> None:
        self._most, self._settle_us = requests_max, settle_us
        self._answered: dict[tuple[str, bytes], None] = {}
        self._asked: dict[tuple[str, bytes], Absence] = {}
        self._rounds: list[_Round] = []

    def __len__(self) -> int:
        return len(self._answered) + len(self._asked)

    @property
    def asked(self) -> bool:
        return bool(self._asked)

    def ask(self, topic: str, absences: Iterable[Absence]) -> None:
        for each in absences:
            if (topic, each.name) not in self._answered and len(self._asked) < self._most:
                self._asked[topic, each.name] = each

    def begin(self) -> list[tuple[str, Absence]]:
        """All that is to be answered now."""
        asked = [(topic, each) for (topic, _), each in self._asked.items()]
        self._answered.update(dict.fromkeys(self._asked))
        self._asked = {}
        while len(self._answered) > self._most:
            del self._answered[next(iter(self._answered))]
        return asked

    def sends(self, asked: Iterable[tuple[str, Absence]], items: Iterable[Hashable]) -> None:
        """By these items it is answered; each is told when it is `through`."""
        left = dict.fromkeys(items)
        if left:  # Where there was nothing to send, nothing can be lost.
            self._rounds.append(_Round([(topic, each.name) for topic, each in asked], left))

    def through(self, item: Hashable, good_us: int, now: int) -> None:
        """It is acknowledged; `good_us` is when the broker is known to have been alive."""
        self._rounds = [each for each in self._rounds if not self._settled(each, good_us)]
        for each in self._rounds:
            if each.left.pop(item, _ABSENT) is not _ABSENT and not each.left:
                each.done_us = now

    def lost(self, good_us: int) -> None:
        for each in self._rounds:
            if not self._settled(each, good_us):
                for name in each.names:
                    self._answered.pop(name, None)
        self._rounds = []

    def _settled(self, each: _Round, good_us: int) -> bool:
        return each.done_us is not None and good_us - each.done_us >= self._settle_us


class Pace:
    """When something may be repeated next. Bounded: the last `most` that were."""

    def __init__(self, again_us: int, most: int) -> None:
        self._again_us, self._most = again_us, most
        self._last: dict[Hashable, tuple[int, int]] = {}
        """How often, and when last."""

    def __len__(self) -> int:
        return len(self._last)

    def wait_us(self, item: Hashable, now: int) -> int:
        """0 if it may be repeated now, which then counts as done."""
        times, last_us = self._last.pop(item, (0, 0))
        next_us = last_us + (self._again_us << min(times - 1, DOUBLED_MAX)) if times else now
        self._last[item] = (times, last_us) if next_us > now else (times + 1, now)
        while len(self._last) > self._most:
            del self._last[next(iter(self._last))]
        return max(0, next_us - now)


@dataclass(slots=True)
class _Round:
    names: list[tuple[str, bytes]]
    left: dict[Hashable, None]
    done_us: int | None = None


DOUBLED_MAX: Final = 4
_ABSENT = object()
