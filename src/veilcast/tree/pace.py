"""Pace: how long to wait for somebody's answer, by how long the answers of all others took.

An anonymous network answers within a tenth of a second when it is small and one's own, and within half a minute when it
is the world's and busy. Who waits the same in both either finds everybody away, or finds out too late that somebody is.
So one waits for a few times what most answers take, and for long while none has come.

What counts of each node is its last answer, and what most take is what all but the slowest quarter do. So a node that
is slow, or answers slowly for us to wait longer for others too, counts once, and nothing as long as few are with it.
"""

from __future__ import annotations

from typing import Final

from veilcast.link.recent import remember
from veilcast.machine import Address


class Pace:
    """Between `least_us` and `most_us`. Bounded: the last answer of each of `KEPT` nodes."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._took_us: dict[Address, int] = {}

    def note(self, whose: Address, took_us: int) -> None:
        """An answer of this node has come, after so long."""
        remember(self._took_us, whose, took_us, KEPT)

    @property
    def usual_us(self) -> int:
        """What most answers take at most; nothing while none has come."""
        took = sorted(self._took_us.values())
        return took[(len(took) - 1) * 3 // 4] if took else 0

    @property
    def us(self) -> int:
        if not self._took_us:
            return self._most_us
        return min(max(self._least_us, TIMES * self.usual_us), self._most_us)


KEPT: Final = 64
TIMES: Final = 4
"""For so many times what most answers take one more is waited for: a network is not as fast with everybody."""
