"""Lingering: how long a paper's publication stays on the disk, where nobody acknowledges anything.

What was sent is with the neighbours at once, or with the links, which send it again until it arrives. Only when
`linger_us` have passed is it settled; a node that ends before that sends it again in its next life. Then it waits for
`linger_us` first, until adverts have gone out and subscriptions have come in: before that there is no mesh to send it
into.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from veilcast.authority.letters import Letter, Records


class Stay(NamedTuple):
    """A letter that waits to be sent, or to be settled if it is out."""

    until_us: int
    record: int
    letter: Letter
    out: bool


class Lingering:
    """Bounded as its records are; all stay for the same time, so those that came first are due first."""

    def __init__(self, linger_us: int, records: Records) -> None:
        self._linger_us, self._records = linger_us, records
        self.stays: deque[Stay] = deque()

    def add(self, record: int, letter: Letter, now: int, *, out: bool) -> None:
        self.stays.append(Stay(now + self._linger_us, record, letter, out))

    def due(self, now: int) -> list[Stay]:
        """What is to be sent now; what has been out for long enough is settled."""
        over: list[Stay] = []
        while self.stays and self.stays[0].until_us <= now:
            over.append(self.stays.popleft())
        for stay in over:
            if stay.out:
                self._records.settle(stay.record, stay.letter)
        return [stay for stay in over if not stay.out]

    def make_room(self) -> None:
        """Settle what has been out for longest, when there is no room for another record: it had its time."""
        while self._records.full and (oldest := next((stay for stay in self.stays if stay.out), None)) is not None:
            self.stays.remove(oldest)
            self._records.settle(oldest.record, oldest.letter)

    def forget(self, record: int) -> None:
        self.stays = deque(stay for stay in self.stays if stay.record != record)
