"""The times at which cells leave: slots that are fixed before the content of the cells is known.

Claims, each for an observer that sees every cell of every link:

1. *Busy or idle.* A slot depends on no content. A late timer sends one cell and goes on to the next slot; missed slots
   are not made up for. A busy machine is later than an idle one by some tenths of a millisecond. So each cell leaves at
   a random time after its slot, up to a quarter of the period (`SendJitter`). The random delay hides the lateness.
2. *Bursts.* After a stall the cells of many links are due at once. `spread_late_cells` lets as many leave at once as do
   when timers are on time. It defers each of the others once, by a random time of up to twice the length of the stall.
3. *Clock skew.* Slots on an exact grid of the machine's clock would show its frequency error, to under 1 ppm after some
   minutes, and an observer would recognise the machine (Kohno, Broido and Claffy 2005). So each link draws its own
   period once, some tenths of a percent longer or shorter than that of its class (`STRETCH_PPB`). The error of a clock,
   about 10 ppm, is hidden by the draw, however long the observer watches. Each slot also moves all later slots a little
   (`STEP_SHARE`): the phase of a link does a random walk. The walk hides how the error of the clock changes, which is
   the same on all links.

Rates divide one another. A change of rate at an epoch edge puts no two slots closer together than the faster period,
except for one step of the walk.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class SendJitter:
    """Unpredictable draws for the times of cells. They come from a secret key: an observer that could predict a draw
    could subtract it."""

    def __init__(self, key: Secret) -> None:
        self._key, self._block = key, 0
        self._words: list[int] = []

    def draw(self, below: int) -> int:
        if not self._words:
            self._block += 1
            self._words += _WORDS.unpack(derive(self._key, b"vc/sway", self._block.to_bytes(8, "big")).reveal())
        return self._words.pop() * below >> 32

    def draw_signed(self, bound: int) -> int:
        """A number from -bound to bound."""
        drawn = self.draw(2 * bound + 1)
        return drawn >> 1 if drawn % 2 == 0 else -(drawn + 1 >> 1)


class CellSlots:
    """The slots of one link. Draw `phase_us` for each link from all of `SECOND_US`, so that no two links keep step.

    Without `jitter` the slots are an exact grid, and cells leave on the slot.
    """

    def __init__(self, rate: int, *, phase_us: int, now: int, jitter: SendJitter | None = None) -> None:
        if not 0 <= phase_us < SECOND_US:
            raise LocalError("a phase is less than a second")
        self._jitter = jitter
        self._change: tuple[int, int] | None = None
        self._stretch_ppb = 0 if jitter is None else sum(jitter.draw_signed(STRETCH_PPB) for _ in range(STRETCH_DRAWS))
        self.period_us = period_us(rate)
        """Period of the class, in microseconds. The link's own period differs by its stretch."""
        self.missed = 0
        """Slots in which no cell could leave, because the timer came too late."""
        self.is_deferred = False
        first_us = now + (phase_us - now) % self.period_us
        self._last_ps = first_us * _PS - self._stretched_ps()
        self._go_to(first_us * _PS)

    def take_due_slot(self, now: int) -> bool:
        """True if a cell is due. True once for each slot, and once for all slots that have passed."""
        if now < self.next_us:
            return False
        self._last_ps = self._slot_ps
        self.missed += self._advance(now + 1) - 1
        return True

    def defer(self, to_us: int) -> None:
        """Let the due cell leave later. The following slots do not change."""
        self.next_us, self.is_deferred = to_us, True

    def change_rate(self, rate: int, *, edge_us: int, now: int) -> None:
        """Use this rate from the next epoch edge on. The last of several pending changes counts."""
        if edge_us <= now:
            raise LocalError("a rate can change only at a future epoch edge")
        self._change = (edge_us, period_us(rate))
        if self._slot_ps >= edge_us * _PS:
            self._advance(edge_us)

    def _advance(self, earliest_us: int) -> int:
        """Go to the first slot after the last that is not before this time. Returns the number of periods between."""
        periods, slot_ps = self._first_from(earliest_us)
        if self._change is not None and slot_ps >= self._change[0] * _PS:
            (edge_us, self.period_us), self._change = self._change, None
            earliest_us = max(earliest_us, edge_us)
            periods, slot_ps = self._first_from(earliest_us)
        if self._jitter is not None:
            slot_ps += self._jitter.draw_signed(self.period_us * _PS // STEP_SHARE)
        self._go_to(max(slot_ps, earliest_us * _PS))
        return periods

    def _first_from(self, earliest_us: int) -> tuple[int, int]:
        period_ps = self._stretched_ps()
        periods = max(1, -((self._last_ps - earliest_us * _PS) // period_ps))
        return periods, self._last_ps + periods * period_ps

    def _stretched_ps(self) -> int:
        return self.period_us * (_BILLION + self._stretch_ppb) // _PPB_PER_PS

    def _go_to(self, slot_ps: int) -> None:
        self._slot_ps, self.is_deferred = slot_ps, False
        self.next_us = slot_ps // _PS
        if self._jitter is not None:
            self.next_us += self._jitter.draw(self.period_us // JITTER_SHARE)


def spread_late_cells(links: Sequence[CellSlots], jitter: SendJitter, cells_per_second: int, now: int) -> None:
    """Defer cells that are due together, in the order in which they were due, so that they leave one by one.

    As many leave now as are due in one tick of a timer that is on time. A cell is deferred once: a machine that is busy
    for long sends late and together, rather than less.
    """
    late = [slots for slots in links if slots.next_us <= now and not slots.is_deferred]
    at_once = 1 + cells_per_second * TICK_US // SECOND_US
    if len(late) <= at_once:
        return
    spread_us = max(SPREAD_MIN_US, 2 * (now - late[0].next_us))
    for slots in late[at_once:]:
        slots.defer(now + 1 + jitter.draw(min(spread_us, slots.period_us // JITTER_SHARE)))


RATES: Final = (1, 4, 16)
"""Cells per second, of the classes of links."""

JITTER_SHARE: Final = 4
"""A cell leaves within this part of its period."""

STRETCH_PPB: Final = 5_000_000
STRETCH_DRAWS: Final = 4
"""The deviation of a link's period: a sum of draws, each of at most 0.5 % in parts of 10^9. A single draw would have
sharp ends, and the middle between the ends of n links would show the clock to a part of n. For a sum, an observer can
do no better than the mean, which is off by 5,774 ppm / sqrt(n)."""

STEP_SHARE: Final = 64
"""A slot moves all later ones by at most this part of the period."""

TICK_US: Final = 1_000
"""Resolution of timers: what is due within one tick leaves together."""
SPREAD_MIN_US: Final = 2_000

SECOND_US: Final = 1_000_000
_PS: Final = 1_000_000
"""Picoseconds in a microsecond. Slots are this fine; otherwise the rounding of periods would show the clock."""
_BILLION: Final = 1_000_000_000
_PPB_PER_PS: Final = _BILLION // _PS
JITTER_KEY_BYTES: Final = 32
_WORDS: Final = Struct(">8I")
