"""Repeats: which absences of readers have been answered, and which must be once more.

Of one session. What was asked for gathers, and all of it is answered at once, so that many readers who come back
together are one round. A round is answered when the broker has acknowledged all of it and has had `settle_us` to bring
it on. If the session loses its broker before, it may have died with it: the absences of that round are as good as never
answered, and readers will name them again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

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


@dataclass(slots=True)
class _Round:
    names: list[tuple[str, bytes]]
    left: dict[Hashable, None]
    done_us: int | None = None


_ABSENT = object()
