"""How lineages move: the laws by which fakes go from one step to the next as the truth might have.

Pure. A mover is told where all candidates stand and what the truth does, and says where each goes; what it says of the
truth's own slot is not used. Laws of this file do not look at the truth at all: Gaussian moves (a geometric Brownian
motion where they are relative, P3's Eq. 1), moves of Student's t, which stock prices fit better, blocks of moves out of
a history, which fit best, and steps back to a mean. `signflip` is a mover that copies the truth's own.

Relative moves are changes of the logarithm, so prices stay above 0; else moves are differences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Chance, Numbers, Places, pick

Memory = TypeVar("Memory")


class Mover(Protocol[Memory]):
    def begin(self, streams: int, n: int, rng: Chance) -> Memory: ...

    def move(
        self, memory: Memory, values: Numbers, before: Numbers, now: Numbers, rng: Chance
    ) -> tuple[Memory, Numbers]:
        """From the values of [streams, n] to the next, as the truth goes from `before` to `now`."""

    def inherited(self, memory: Memory, rows: Places, parent: Places, victim: Places) -> Memory:
        """In these streams, what is remembered of a parent is from now on remembered of its victim, too."""


@dataclass(frozen=True)
class Gaussian:
    mean: float
    deviation: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.deviation)

    def begin(self, streams: int, n: int, rng: Chance) -> None:
        return None

    def move(self, memory: None, values: Numbers, before: Numbers, now: Numbers, rng: Chance) -> tuple[None, Numbers]:
        return None, moved(values, self.mean + self.deviation * rng.standard_normal(values.shape), self.relative)

    def inherited(self, memory: None, rows: Places, parent: Places, victim: Places) -> None:
        return None


def brownian(mu: float, sigma: float, dt: float) -> Gaussian:
    """Geometric, of P3's Eq. 1, with rates by year and the step in years."""
    return Gaussian((mu - sigma**2 / 2) * dt, sigma * math.sqrt(dt), relative=True)


@dataclass(frozen=True)
class StudentT:
    mean: float
    scale: float
    freedom: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.scale)
        if not 1 <= self.freedom < math.inf:
            raise ConfigError("Student's t has 1 degree of freedom or more")

    def begin(self, streams: int, n: int, rng: Chance) -> None:
        return None

    def move(self, memory: None, values: Numbers, before: Numbers, now: Numbers, rng: Chance) -> tuple[None, Numbers]:
        return None, moved(values, self.mean + self.scale * self._standard(values.shape, rng), self.relative)

    def inherited(self, memory: None, rows: Places, parent: Places, victim: Places) -> None:
        return None

    def _standard(self, shape: tuple[int, ...], rng: Chance) -> Numbers:
        """By a length and an angle, as Box and Muller do for the normal law (Bailey, 1994)."""
        length, angle = 1 - rng.random(shape), rng.random(shape)
        return np.sqrt(self.freedom * np.expm1(-2 / self.freedom * np.log(length))) * np.cos(2 * np.pi * angle)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Moves of a history, so many in a row as they were: they keep how calm and restless times follow one another."""

    history: Numbers
    length: int
    relative: bool = False

    def __post_init__(self) -> None:
        if self.history.ndim != 1 or not np.isfinite(self.history).all() or not np.ptp(self.history) > 0:
            raise ConfigError("a history of moves is of finite numbers that are not all the same")
        if not 1 <= self.length <= len(self.history):
            raise ConfigError("a block is of 1 move up to the whole history")

    def begin(self, streams: int, n: int, rng: Chance) -> Places:
        """Of each slot, the next move of its block and how many are left: blocks do not end in all slots at once."""
        return np.stack([pick(rng, len(self.history), (streams, n)), pick(rng, self.length, (streams, n))])

    def move(
        self, memory: Places, values: Numbers, before: Numbers, now: Numbers, rng: Chance
    ) -> tuple[Places, Numbers]:
        at, left = memory
        over = left == 0
        at = np.where(over, pick(rng, len(self.history), at.shape), at)
        left = np.where(over, self.length, left)
        after = np.stack([(at + 1) % len(self.history), left - 1])
        return after, moved(values, self.history[at], self.relative)

    def inherited(self, memory: Places, rows: Places, parent: Places, victim: Places) -> Places:
        """Nothing: a child that went on in its parent's block would stay beside it to the end of that."""
        return memory


@dataclass(frozen=True)
class Reverting:
    """An autoregression of order one: a share `keep` of the distance to the mean is left after each step."""

    mean: float
    keep: float
    deviation: float

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.deviation)
        if not -1 < self.keep < 1:
            raise ConfigError("what is kept of a distance is between -1 and 1")

    def begin(self, streams: int, n: int, rng: Chance) -> None:
        return None

    def move(self, memory: None, values: Numbers, before: Numbers, now: Numbers, rng: Chance) -> tuple[None, Numbers]:
        noise = self.deviation * rng.standard_normal(values.shape)
        return None, self.mean + self.keep * (values - self.mean) + noise

    def inherited(self, memory: None, rows: Places, parent: Places, victim: Places) -> None:
        return None


def moved(values: Numbers, moves: Numbers, relative: bool) -> Numbers:
    return values * np.exp(np.clip(moves, -_FAR, _FAR)) if relative else values + moves


def moves_of(series: Numbers, *, relative: bool) -> Numbers:
    """What the values of one history did from step to step."""
    if series.ndim != 1 or len(series) < 3 or not np.isfinite(series).all():
        raise LocalError("a history is three finite numbers or more; gaps are filled first")
    if relative and not (series > 0).all():
        raise LocalError("relative moves are of values above 0")
    moves = np.diff(np.log(series) if relative else series)
    if not np.ptp(moves) > 0:
        raise LocalError("a history that always moves alike says nothing of other ways to move")
    return moves


def _check_spread(mean: float, deviation: float) -> None:
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise ConfigError("moves have a finite mean and a deviation above 0")


_FAR: Final = 20.0
"""No step multiplies a value by more than e to the 20th: heavy tails would else leave all numbers behind."""
