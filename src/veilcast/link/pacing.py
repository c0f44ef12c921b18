"""When cells leave: near a grid of instants that was fixed before anything was known of what they carry.

The slots of a link are the instants `phase + k * period`. A timer that comes late sends one cell and goes on to the
next slot; what was missed is not made up for, since a burst would tell how busy this machine was. Rates divide one
another, so with one phase every slot of a slower rate is a slot of the faster ones: a change of rate at an epoch's edge
puts no two slots closer together than the faster period.

A busy machine is late by some tenths of a millisecond more than an idle one, and who watches many cells sees that. So
each cell leaves some time after its slot that is drawn anew for it, up to a quarter of the period: its lateness is lost
in what nobody can predict.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError


def period_us(rate: int) -> int:
    """Microseconds between the cells of a link of this class."""
    if rate not in RATES:
        raise LocalError(f"no class of links has {rate} cells a second; there are {', '.join(map(str, RATES))}")
    return SECOND_US // rate


class Sway:
    """How long after its slot a cell leaves. Made from a key: whoever could predict it could take it away."""

    def __init__(self, key: Secret) -> None:
        self._key, self._block = key, 0
        self._words: list[int] = []

    def draw(self, below: int) -> int:
        if not self._words:
            self._block += 1
            self._words += _WORDS.unpack(derive(self._key, b"vc/sway", self._block.to_bytes(8, "big")).reveal())
        return self._words.pop() * below >> 32


class Slots:
    """The slots of one link. Draw `phase_us` for each link from all `SECOND_US`, so that no two links keep step.

    Without a `sway` cells leave on the slot.
    """

    def __init__(self, rate: int, *, phase_us: int, now: int, sway: Sway | None = None) -> None:
        if not 0 <= phase_us < SECOND_US:
            raise LocalError("a phase is less than a second")
        self._phase_us, self._sway = phase_us, sway
        self._change: tuple[int, int] | None = None
        self.period_us = period_us(rate)
        self.missed = 0
        """Slots in which no cell could leave, since the timer came too late."""
        self._go_to(self._slot_from(now))

    def due(self, now: int) -> bool:
        """Whether a cell is to leave now. True once for each slot, and once for all that have passed."""
        if now < self.next_us:
            return False
        self.missed += (now - self._slot_us) // self.period_us
        self._go_to(self._slot_from(now + 1))
        return True

    def change(self, rate: int, *, edge_us: int, now: int) -> None:
        """Keep this rate from the coming edge of an epoch on; of several changes that wait, the last counts."""
        if edge_us <= now:
            raise LocalError("a rate changes at an edge to come")
        self._change = (edge_us, period_us(rate))
        if self._slot_us >= edge_us:
            self._go_to(self._slot_from(edge_us))

    def _go_to(self, slot_us: int) -> None:
        self._slot_us = self.next_us = slot_us
        if self._sway is not None:
            self.next_us += self._sway.draw(self.period_us // SWAY_SHARE)

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

SWAY_SHARE: Final = 4
"""A cell leaves within this part of its period."""

SECOND_US: Final = 1_000_000
SWAY_KEY: Final = 32
_WORDS: Final = Struct(">8I")
