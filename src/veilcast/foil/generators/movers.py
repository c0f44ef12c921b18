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


How lineages move: the laws by which fakes go from one step to the next as the truth might have.

Pure. A mover is told where all candidates stand and what the truth does, and says where each goes; what it says of the
truth's own slot is not used. Laws of this file do not look at the truth at all: Gaussian moves (a geometric Brownian
motion where they are relative, P3's Eq. 1), moves of Student's t, which stock prices fit better, blocks of moves out of
a history, which fit best, and steps back to a mean. `signflip` is a mover that copies the truth's own.

Relative moves are changes of the logarithm, so prices stay above 0; else moves are differences.


Whether a move goes on or turns back, given how far it and the last one go: the law of signs that sign-flip needs.

Pure. Prices lean back a little: trades at the bid and at the ask take turns, and a large move is often in part undone.
Fakes whose signs are fair coins do not, and over a day the sum of products of neighbouring moves gives the truth away.
For Gaussian moves that depend on the last by an autoregression, given both sizes, the logarithm of the odds that the
two have one sign is proportional to the product of the sizes. Here it is that and a constant, both fitted by the
largest likelihood. The fit has a property that is wanted: drawn anew by this law, as many moves turn back as did, and
the sum of products is on average what it was.


Student's t fitted to a history of moves, by the largest likelihood.

Pure. For given degrees of freedom, location and scale are found by weighing each move down the farther out it is and
averaging, again and again (an EM algorithm); the degrees of freedom are those of a fixed grid under which the moves are
most likely. Where very many moves are the same (a price that mostly rests), the likelihood grows without end as the
scale shrinks on them: it stays above a thousandth of the plain deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource, draw_integers

Memory = TypeVar("Memory")


class Mover(Protocol[Memory]):
    def begin(self, streams: int, n: int, rng: RandomSource) -> Memory: ...

    def move(
        self, memory: Memory, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[Memory, FloatArray]:
        """From the values of [streams, n] to the next, as the truth goes from `before` to `now`."""

    def inherit(self, memory: Memory, rows: IntArray, parent: IntArray, victim: IntArray) -> Memory:
        """In these streams, what is remembered of a parent is from now on remembered of its victim, too."""


@dataclass(frozen=True)
class GaussianMoves:
    mean: float
    deviation: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.deviation)

    def begin(self, streams: int, n: int, rng: RandomSource) -> None:
        return None

    def move(
        self, memory: None, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[None, FloatArray]:
        return None, apply_moves(values, self.mean + self.deviation * rng.standard_normal(values.shape), self.relative)

    def inherit(self, memory: None, rows: IntArray, parent: IntArray, victim: IntArray) -> None:
        return None


def geometric_brownian(mu: float, sigma: float, dt: float) -> GaussianMoves:
    """Geometric, of P3's Eq. 1, with rates by year and the step in years."""
    return GaussianMoves((mu - sigma**2 / 2) * dt, sigma * math.sqrt(dt), relative=True)


@dataclass(frozen=True)
class StudentMoves:
    mean: float
    scale: float
    freedom: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.scale)
        if not 1 <= self.freedom < math.inf:
            raise ConfigError("Student's t has 1 degree of freedom or more")

    def begin(self, streams: int, n: int, rng: RandomSource) -> None:
        return None

    def move(
        self, memory: None, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[None, FloatArray]:
        return None, apply_moves(values, self.mean + self.scale * self._standard(values.shape, rng), self.relative)

    def inherit(self, memory: None, rows: IntArray, parent: IntArray, victim: IntArray) -> None:
        return None

    def _standard(self, shape: tuple[int, ...], rng: RandomSource) -> FloatArray:
        """By a length and an angle, as Box and Muller do for the normal law (Bailey, 1994)."""
        length, angle = 1 - rng.random(shape), rng.random(shape)
        return np.sqrt(self.freedom * np.expm1(-2 / self.freedom * np.log(length))) * np.cos(2 * np.pi * angle)


@dataclass(frozen=True, eq=False)
class BlockMoves:
    """Moves of a history, so many in a row as they were: they keep how calm and restless times follow one another."""

    history: FloatArray
    length: int
    relative: bool = False

    def __post_init__(self) -> None:
        if self.history.ndim != 1 or not np.isfinite(self.history).all() or not np.ptp(self.history) > 0:
            raise ConfigError("a history of moves is of finite numbers that are not all the same")
        if not 1 <= self.length <= len(self.history):
            raise ConfigError("a block is of 1 move up to the whole history")

    def begin(self, streams: int, n: int, rng: RandomSource) -> IntArray:
        """Of each slot, the next move of its block and how many are left: blocks do not end in all slots at once."""
        return np.stack(
            [draw_integers(rng, len(self.history), (streams, n)), draw_integers(rng, self.length, (streams, n))]
        )

    def move(
        self, memory: IntArray, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[IntArray, FloatArray]:
        at, left = memory
        over = left == 0
        at = np.where(over, draw_integers(rng, len(self.history), at.shape), at)
        left = np.where(over, self.length, left)
        after = np.stack([(at + 1) % len(self.history), left - 1])
        return after, apply_moves(values, self.history[at], self.relative)

    def inherit(self, memory: IntArray, rows: IntArray, parent: IntArray, victim: IntArray) -> IntArray:
        """Nothing: a child that went on in its parent's block would stay beside it to the end of that."""
        return memory


@dataclass(frozen=True)
class RevertingMoves:
    """An autoregression of order one: a share `keep` of the distance to the mean is left after each step."""

    mean: float
    keep: float
    deviation: float

    def __post_init__(self) -> None:
        _check_spread(self.mean, self.deviation)
        if not -1 < self.keep < 1:
            raise ConfigError("what is kept of a distance is between -1 and 1")

    def begin(self, streams: int, n: int, rng: RandomSource) -> None:
        return None

    def move(
        self, memory: None, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[None, FloatArray]:
        noise = self.deviation * rng.standard_normal(values.shape)
        return None, self.mean + self.keep * (values - self.mean) + noise

    def inherit(self, memory: None, rows: IntArray, parent: IntArray, victim: IntArray) -> None:
        return None


def apply_moves(values: FloatArray, moves: FloatArray, relative: bool) -> FloatArray:
    return values * np.exp(np.clip(moves, -_FAR, _FAR)) if relative else values + moves


def moves_between(series: FloatArray, *, relative: bool) -> FloatArray:
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


@dataclass(frozen=True)
class SignPersistence:
    constant: float = 0.0
    slope: float = 0.0
    """For each unit of one size times the other."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.constant) and math.isfinite(self.slope)):
            raise ConfigError("a lean has finite numbers")

    @classmethod
    def fit(cls, moves: FloatArray) -> Self:
        """To the moves of one history; those that rest say nothing."""
        before, now = moves[:-1], moves[1:]
        told = (before != 0) & (now != 0)
        if np.count_nonzero(told) < MOVE_PAIRS_MIN:
            raise LocalError(f"a lean is fitted to {MOVE_PAIRS_MIN} pairs of moves or more")
        same = (before * now)[told] > 0
        products = np.abs(before * now)[told]
        unit = float(products.mean())
        features = np.stack([np.ones(len(products)), products / unit], axis=1)
        weights = np.zeros(2)
        for _ in range(_NEWTON_STEPS):
            p = _logistic(features @ weights)
            curvature = (features * (p * (1 - p))[:, None]).T @ features + _RIDGE * np.eye(2)
            weights += np.linalg.solve(curvature, features.T @ (same - p) - _RIDGE * weights)
        return cls(float(weights[0]), float(weights[1]) / unit)

    def same_sign_probability(self, last: FloatArray, sizes: FloatArray) -> FloatArray:
        """The probability that a move of that size has the sign of the last."""
        return _logistic(self.constant + self.slope * np.abs(last) * sizes)


def _logistic(odds: FloatArray) -> FloatArray:
    """From the logarithm of odds."""
    return 1 / (1 + np.exp(-np.clip(odds, -_SURE, _SURE)))


FAIR_SIGNS: Final = SignPersistence()

MOVE_PAIRS_MIN: Final = 30

_NEWTON_STEPS: Final = 25
_RIDGE: Final = 1e-3
"""Keeps the fit finite where all moves turn back, or all go on."""
_SURE: Final = 30.0


def fit_student_t(moves: FloatArray, *, relative: bool) -> StudentMoves:
    """`moves` are those of `moves_of`."""
    fits = [(*_located(moves, freedom), freedom) for freedom in STUDENT_FREEDOMS]
    mean, scale, freedom = max(fits, key=lambda fit: _likelihood(moves, *fit))
    return StudentMoves(mean, scale, freedom, relative)


def _located(moves: FloatArray, freedom: float) -> tuple[float, float]:
    plain = float(moves.std())
    mean, scale = float(np.median(moves)), plain
    for _ in range(_EM_STEPS):
        weights = (freedom + 1) / (freedom + ((moves - mean) / scale) ** 2)
        mean = float(np.average(moves, weights=weights))
        scale = max(float(np.sqrt(np.mean(weights * (moves - mean) ** 2))), plain * _LEAST_SCALE)
    return mean, scale


def _likelihood(moves: FloatArray, mean: float, scale: float, freedom: float) -> float:
    """Its logarithm, for each move, without what is the same for all."""
    far = np.log1p(((moves - mean) / scale) ** 2 / freedom).mean()
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom) / 2
    return gammas - math.log(scale) - (freedom + 1) / 2 * float(far)


STUDENT_FREEDOMS: Final = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 50.0)
"""Beyond the last, moves are as good as Gaussian."""

_EM_STEPS: Final = 40
_LEAST_SCALE: Final = 1e-3


@dataclass(frozen=True, eq=False)
class Coins:
    signs: FloatArray
    """Of [streams, n]: 1 where a candidate goes with the truth, -1 where it goes the other way."""
    stood: FloatArray | None
    """Of [streams, n]: where each was a step ago, as it was published."""
    left: int
    """For how many steps more the signs hold."""
    length: int = 0
    """Of the block that they are of; 0 before the first."""


@dataclass(frozen=True)
class SignFlipMoves:
    block: int = 1
    relative: bool = False
    persistence: SignPersistence = FAIR_SIGNS
    growing: bool = False
    """Whether the first block is of one step and each next one twice as long, up to `block`."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ConfigError("a block is of 1 step or more")

    def begin(self, streams: int, n: int, rng: RandomSource) -> Coins:
        return Coins(np.ones((streams, n)), None, 0, 0)

    def move(
        self, memory: Coins, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[Coins, FloatArray]:
        if self.relative and not ((before > 0) & (now > 0)).all():
            raise LocalError("relative moves are of values above 0")
        true = self._moves(before, now)[:, None]
        signs, left, length = memory.signs, memory.left, memory.length
        if not left:
            left = length = min(2 * length or 1, self.block) if self.growing else self.block
            last = np.zeros(values.shape) if memory.stood is None else self._moves(memory.stood, values)
            signs = self._signs(last, true, rng)
        return Coins(signs, values, left - 1, length), apply_moves(values, signs * true, self.relative)

    def inherit(self, memory: Coins, rows: IntArray, parent: IntArray, victim: IntArray) -> Coins:
        """How the parent moved last. Where one coin serves for a block, the child has its own until the next."""
        if memory.stood is None:
            return memory
        stood = memory.stood.copy()
        stood[rows, victim] = stood[rows, parent]
        return Coins(memory.signs, stood, memory.left, memory.length)

    def _moves(self, before: FloatArray, now: FloatArray) -> FloatArray:
        return np.log(now / before) if self.relative else now - before

    def _signs(self, last: FloatArray, true: FloatArray, rng: RandomSource) -> FloatArray:
        coins = rng.random(last.shape)
        goes_on = np.where(coins < self.persistence.same_sign_probability(last, np.abs(true)), 1.0, -1.0)
        # Where one of the two moves rests there is nothing to lean on.
        return np.where(last * true != 0, goes_on * np.sign(last * true), np.where(coins < 0.5, 1.0, -1.0))
