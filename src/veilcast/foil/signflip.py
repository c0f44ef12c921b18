"""Sign-flip: fakes move as far as the truth does, each step up or down as a coin falls.

Pure; a mover of `trajectory`. Laws that are fitted to a history miss something of the day: how restless it is just now
can be seen elsewhere, in an index or in the volume traded, and tells the truth from fakes of any other law. Fakes with
the truth's own absolute moves are as restless as it is, at every step. What is left is the signs, and where moves up
and down are equally likely given all that was before, any signs are as likely as the true ones. Where moves lean back
to what the last one left, so must the coins: see `lean`. One coin may serve for a block of steps, which keeps the order
of moves within. A drift is not copied.

From a common start there are two places to be after one step and four after two, so at first many candidates share one
value, and who names the value of most is right more often than 1 / n: paths spread out only as steps of different sizes
come together. With blocks that takes as many times longer, unless they grow: the first of one step, the next of two,
then of four, up to their length. They end at one moment for all candidates, and depend on nothing but how many steps
there were, so their ends tell nothing; at each there are as many paths again. With Moran branching, which makes new
copies at every step, it never ends: laws whose moves are drawn are better there. A truth that rests lets all candidates
rest, and a truth that never moves stands alone in their midst: there is nothing to copy, and what did not change since
the public start is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Chance, Numbers, Places
from veilcast.foil.lean import FAIR, Lean
from veilcast.foil.moves import moved


@dataclass(frozen=True, eq=False)
class Coins:
    signs: Numbers
    """Of [streams, n]: 1 where a candidate goes with the truth, -1 where it goes the other way."""
    stood: Numbers | None
    """Of [streams, n]: where each was a step ago, as it was published."""
    left: int
    """For how many steps more the signs hold."""
    length: int = 0
    """Of the block that they are of; 0 before the first."""


@dataclass(frozen=True)
class SignFlip:
    block: int = 1
    relative: bool = False
    lean: Lean = FAIR
    growing: bool = False
    """Whether the first block is of one step and each next one twice as long, up to `block`."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ConfigError("a block is of 1 step or more")

    def begin(self, streams: int, n: int, rng: Chance) -> Coins:
        return Coins(np.ones((streams, n)), None, 0, 0)

    def move(self, memory: Coins, values: Numbers, before: Numbers, now: Numbers, rng: Chance) -> tuple[Coins, Numbers]:
        if self.relative and not ((before > 0) & (now > 0)).all():
            raise LocalError("relative moves are of values above 0")
        true = self._moves(before, now)[:, None]
        signs, left, length = memory.signs, memory.left, memory.length
        if not left:
            left = length = min(2 * length or 1, self.block) if self.growing else self.block
            last = np.zeros(values.shape) if memory.stood is None else self._moves(memory.stood, values)
            signs = self._signs(last, true, rng)
        return Coins(signs, values, left - 1, length), moved(values, signs * true, self.relative)

    def inherited(self, memory: Coins, rows: Places, parent: Places, victim: Places) -> Coins:
        """How the parent moved last. Where one coin serves for a block, the child has its own until the next."""
        if memory.stood is None:
            return memory
        stood = memory.stood.copy()
        stood[rows, victim] = stood[rows, parent]
        return Coins(memory.signs, stood, memory.left, memory.length)

    def _moves(self, before: Numbers, now: Numbers) -> Numbers:
        return np.log(now / before) if self.relative else now - before

    def _signs(self, last: Numbers, true: Numbers, rng: Chance) -> Numbers:
        coins = rng.random(last.shape)
        goes_on = np.where(coins < self.lean.same_sign(last, np.abs(true)), 1.0, -1.0)
        # Where one of the two moves rests there is nothing to lean on.
        return np.where(last * true != 0, goes_on * np.sign(last * true), np.where(coins < 0.5, 1.0, -1.0))
