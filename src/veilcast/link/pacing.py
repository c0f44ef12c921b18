"""When cells leave: on a grid of instants that was fixed before anything was known of what they carry.

The slots of a link are the instants `phase + k * period`. A timer that comes late sends one cell and goes on to the
next slot; what was missed is not made up for, since a burst would tell how busy this machine was. Rates divide one
another, so with one phase every slot of a slower rate is a slot of the faster ones: a change of rate at an epoch's edge
puts no two slots closer together than the faster period.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import LocalError


def period_us(rate: int) -> int:
    """Microseconds between the cells of a link of this class."""
    if rate not in RATES:
        raise LocalError(f"no class of links has {rate} cells a second; there are {', '.join(map(str, RATES))}")
    return SECOND_US // rate


class Slots:
    """The slots of one link. Draw `phase_us` for each link from all `SECOND_US`, so that no two links keep step."""

    def __init__(self, rate: int, *, phase_us: int, now: int) -> None:
        if not 0 <= phase_us < SECOND_US:
            raise LocalError("a phase is less than a second")
        self._phase_us = phase_us
        self._change: tuple[int, int] | None = None
        self.period_us = period_us(rate)
        self.missed = 0
        """Slots in which no cell could leave, since the timer came too late."""
        self.next_us = self._slot_from(now)

    def due(self, now: int) -> bool:
        """Whether a cell is to leave now. True once for each slot, and once for all that have passed."""
        if now < self.next_us:
            return False
        self.missed += (now - self.next_us) // self.period_us
        self.next_us = self._slot_from(now + 1)
        return True

    def change(self, rate: int, *, edge_us: int, now: int) -> None:
        """Keep this rate from the coming edge of an epoch on; of several changes that wait, the last counts."""
        if edge_us <= now:
            raise LocalError("a rate changes at an edge to come")
        self._change = (edge_us, period_us(rate))
        if self.next_us >= edge_us:
            self.next_us = self._slot_from(edge_us)

    def _slot_from(self, earliest_us: int) -> int:
        """The first slot that is not before this time."""
        slot_us = earliest_us + (self._phase_us - earliest_us) % self.period_us
        if self._change is not None and slot_us >= self._change[0]:
            (edge_us, self.period_us), self._change = self._change, None
            earliest_us = max(earliest_us, edge_us)
            slot_us = earliest_us + (self._phase_us - earliest_us) % self.period_us
        return slot_us


RATES: Final = (1, 4, 16)
"""Cells a second, of the classes that links come in."""

SECOND_US: Final = 1_000_000
