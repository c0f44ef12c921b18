"""Sign-flip: fakes move as far as the truth does, each step up or down as a coin falls.

Pure; a mover of `trajectory`. Laws that are fitted to a history miss something of the day: how restless it is just now
can be seen elsewhere, in an index or in the volume traded, and tells the truth from fakes of any other law. Fakes with
the truth's own absolute moves are as restless as it is, at every step. What is left is the signs, and where moves up
and down are equally likely given all that was before, any signs are as likely as the true ones. One coin may serve for
a block of steps, which keeps the order of moves within; a series that drifts, or that leans back to a mean, is told
apart.

From a common start there are two places to be after one step and four after two, so at first many candidates share one
value, and who names the value of most is right more often than 1 / n: paths spread out only as steps of different sizes
come together. A truth that rests lets all candidates rest, and a truth that never moves stands alone in their midst:
there is nothing to copy, and what did not change since the public start is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Chance, Numbers
from veilcast.foil.moves import moved


@dataclass(frozen=True, eq=False)
class Signs:
    signs: Numbers
    """Of [streams, n], 1 or -1."""
    left: int
    """For how many steps more."""


@dataclass(frozen=True)
class SignFlip:
    block: int = 1
    relative: bool = False

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ConfigError("a block is of 1 step or more")

    def begin(self, streams: int, n: int, rng: Chance) -> Signs:
        return Signs(np.ones((streams, n)), 0)

    def move(self, memory: Signs, values: Numbers, before: Numbers, now: Numbers, rng: Chance) -> tuple[Signs, Numbers]:
        if not memory.left:
            memory = Signs(np.where(rng.random(values.shape) < 0.5, -1.0, 1.0), self.block)
        if self.relative and not ((before > 0) & (now > 0)).all():
            raise LocalError("relative moves are of values above 0")
        moves = np.log(now / before) if self.relative else now - before
        return Signs(memory.signs, memory.left - 1), moved(values, memory.signs * moves[:, None], self.relative)
