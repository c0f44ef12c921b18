"""Movers: the laws by which fakes move from one step to the next as the truth might have.

Pure. A mover receives the positions of all candidates and the truth's move, and returns the next position of each; its
result for the truth's own slot is not used. Relative moves are changes of the logarithm, so prices stay above 0;
otherwise moves are differences.

**Laws that ignore the truth**: Gaussian moves (a geometric Brownian motion if they are relative, P3's Eq. 1), moves of
Student's t, which stock prices fit better, blocks of moves out of a history, which fit best, and steps back to a mean.

`fit_student_t` fits Student's t to a history of moves by maximum likelihood. For given degrees of freedom, location and
scale are found by repeatedly averaging the moves with weights that fall with their distance (an EM algorithm). The
degrees of freedom are those of a fixed grid under which the moves are most likely. If very many moves are equal (a
price that mostly rests), the likelihood grows without bound as the scale shrinks on them: the scale stays above a
thousandth of the plain deviation.

**Sign-flip** (`SignFlipMoves`): fakes move as far as the truth does, each step up or down at random. Laws that are
fitted to a history miss the mood of the day: the current volatility is visible elsewhere, in an index or in the volume
traded, and tells the truth from fakes of any other law. Fakes with the truth's own absolute moves are as volatile as
the truth at every step. Only the signs remain. If moves up and down are equally likely given the past, all sign
patterns are equally likely. If moves tend to reverse, the random signs must too (`SignPersistence`). One sign may serve
for a block of steps, which keeps the order of moves within. A drift is not copied.

From a common start there are two values after one step and four after two. So at first many candidates share one value,
and an adversary that names the most common value is right more often than 1 / n: paths spread out only as steps of
different sizes add up. With blocks that takes as many times longer, unless they grow: the first of one step, the next
of two, then of four, up to their length. Blocks end at one moment for all candidates, and depend only on the number of
steps, so their ends reveal nothing; at each end the number of paths doubles. With Moran branching, which makes new
copies at every step, the spreading never ends: laws whose moves are drawn work better there. If the truth rests, all
candidates rest, and a truth that never moves stands alone among them: there is nothing to copy, and a value that did
not change since the public start is public.

**Sign persistence** (`SignPersistence`): the probability that a move has the sign of the last one, given the sizes of
both. Prices tend to reverse a little: trades at the bid and at the ask alternate, and a large move is often partly
undone. Fakes with fair random signs do not, and over a day the sum of products of neighbouring moves gives the truth
away. For Gaussian moves that depend on the last by an autoregression, given both sizes, the log-odds that the two have
one sign is proportional to the product of the sizes. Here it is that and a constant, both fitted by maximum likelihood.
The fit has a useful property: with signs drawn by this law, as many moves reverse as did, and the sum of products is on
average what it was.
"""

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
        """Copy a parent's memory to its victim, in these streams."""


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
    """P3's Eq. 1, with rates by year and the step in years."""
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


def fit_student_t(moves: FloatArray, *, relative: bool) -> StudentMoves:
    """`moves` are the result of `moves_between`."""
    fits = [(*_locate(moves, freedom), freedom) for freedom in STUDENT_FREEDOMS]
    mean, scale, freedom = max(fits, key=lambda fit: _likelihood(moves, *fit))
    return StudentMoves(mean, scale, freedom, relative)


@dataclass(frozen=True, eq=False)
class BlockMoves:
    """Consecutive moves of a history: they keep the sequence of calm and volatile times."""

    history: FloatArray
    length: int
    relative: bool = False

    def __post_init__(self) -> None:
        if self.history.ndim != 1 or not np.isfinite(self.history).all() or not np.ptp(self.history) > 0:
            raise ConfigError("a history of moves needs finite numbers that are not all equal")
        if not 1 <= self.length <= len(self.history):
            raise ConfigError("a block has 1 move up to the whole history")

    def begin(self, streams: int, n: int, rng: RandomSource) -> IntArray:
        """For each slot, the next move of its block and the number left: blocks do not end in all slots at once."""
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
        """Copies nothing: a child in its parent's block would stay beside it to the end of the block."""
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
            raise ConfigError("keep must be between -1 and 1")

    def begin(self, streams: int, n: int, rng: RandomSource) -> None:
        return None

    def move(
        self, memory: None, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[None, FloatArray]:
        noise = self.deviation * rng.standard_normal(values.shape)
        return None, self.mean + self.keep * (values - self.mean) + noise

    def inherit(self, memory: None, rows: IntArray, parent: IntArray, victim: IntArray) -> None:
        return None


@dataclass(frozen=True)
class SignPersistence:
    constant: float = 0.0
    slope: float = 0.0
    """Per unit of one size times the other."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.constant) and math.isfinite(self.slope)):
            raise ConfigError("a lean must have finite numbers")

    @classmethod
    def fit(cls, moves: FloatArray) -> Self:
        """Fit to the moves of one history; steps without a move are ignored."""
        before, now = moves[:-1], moves[1:]
        both_move = (before != 0) & (now != 0)
        if np.count_nonzero(both_move) < MOVE_PAIRS_MIN:
            raise LocalError(f"a fit of the lean needs at least {MOVE_PAIRS_MIN} pairs of moves")
        same = (before * now)[both_move] > 0
        products = np.abs(before * now)[both_move]
        unit = float(products.mean())
        features = np.stack([np.ones(len(products)), products / unit], axis=1)
        weights = np.zeros(2)
        for _ in range(_NEWTON_STEPS):
            p = _logistic(features @ weights)
            curvature = (features * (p * (1 - p))[:, None]).T @ features + _RIDGE * np.eye(2)
            weights += np.linalg.solve(curvature, features.T @ (same - p) - _RIDGE * weights)
        return cls(float(weights[0]), float(weights[1]) / unit)

    def bounded(self, moves: FloatArray) -> Self:
        """The same, within `LEAN_MAX` for moves of typical sizes. Beyond it one path is nearly certain, and that of the
        truth: a fit to moves that never turn would say so."""
        sizes = np.abs(moves[:-1] * moves[1:])
        unit = float(sizes.mean()) or 1.0
        limit = LEAN_MAX / 2
        return type(self)(
            float(np.clip(self.constant, -limit, limit)), float(np.clip(self.slope * unit, -limit, limit)) / unit
        )

    def same_sign_probability(self, last: FloatArray, sizes: FloatArray) -> FloatArray:
        """Probability that a move of that size has the sign of the last."""
        return _logistic(self.constant + self.slope * np.abs(last) * sizes)


FAIR_SIGNS: Final = SignPersistence()


@dataclass(frozen=True, eq=False)
class SignFlipState:
    signs: FloatArray
    """[streams, n]: 1 if a candidate moves with the truth, -1 if it moves the other way."""
    previous_values: FloatArray | None
    """[streams, n]: the value of each a step ago, as it was published."""
    left: int
    """Steps for which the signs still hold."""
    length: int = 0
    """Length of their block; 0 before the first."""


@dataclass(frozen=True)
class SignFlipMoves:
    block: int = 1
    relative: bool = False
    persistence: SignPersistence = FAIR_SIGNS
    growing: bool = False
    """The first block has one step, and each next one is twice as long, up to `block`."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ConfigError("a block has at least 1 step")

    def begin(self, streams: int, n: int, rng: RandomSource) -> SignFlipState:
        return SignFlipState(np.ones((streams, n)), None, 0, 0)

    def move(
        self, memory: SignFlipState, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[SignFlipState, FloatArray]:
        if self.relative and not ((before > 0) & (now > 0)).all():
            raise LocalError("relative moves are of values above 0")
        true = self._moves_between(before, now)[:, None]
        signs, left, length = memory.signs, memory.left, memory.length
        if not left:
            left = length = min(2 * length or 1, self.block) if self.growing else self.block
            last = (
                np.zeros(values.shape)
                if memory.previous_values is None
                else self._moves_between(memory.previous_values, values)
            )
            signs = self._draw_signs(last, true, rng)
        return SignFlipState(signs, values, left - 1, length), apply_moves(values, signs * true, self.relative)

    def inherit(self, memory: SignFlipState, rows: IntArray, parent: IntArray, victim: IntArray) -> SignFlipState:
        """Copies the parent's last value. Where one sign serves for a block, the child keeps its own until the next."""
        if memory.previous_values is None:
            return memory
        previous_values = memory.previous_values.copy()
        previous_values[rows, victim] = previous_values[rows, parent]
        return SignFlipState(memory.signs, previous_values, memory.left, memory.length)

    def _moves_between(self, before: FloatArray, now: FloatArray) -> FloatArray:
        return np.log(now / before) if self.relative else now - before

    def _draw_signs(self, last: FloatArray, true: FloatArray, rng: RandomSource) -> FloatArray:
        draws = rng.random(last.shape)
        goes_on = np.where(draws < self.persistence.same_sign_probability(last, np.abs(true)), 1.0, -1.0)
        # If one of the two moves is zero, persistence does not apply.
        return np.where(last * true != 0, goes_on * np.sign(last * true), np.where(draws < 0.5, 1.0, -1.0))


def apply_moves(values: FloatArray, moves: FloatArray, relative: bool) -> FloatArray:
    return values * np.exp(np.clip(moves, -_FAR, _FAR)) if relative else values + moves


def moves_between(series: FloatArray, *, relative: bool) -> FloatArray:
    """The moves between consecutive values of one history."""
    if series.ndim != 1 or len(series) < 3 or not np.isfinite(series).all():
        raise LocalError("a history is three finite numbers or more; gaps are filled first")
    if relative and not (series > 0).all():
        raise LocalError("relative moves are of values above 0")
    moves = np.diff(np.log(series) if relative else series)
    if not np.ptp(moves) > 0:
        raise LocalError("a history whose moves are all equal says nothing about other moves")
    return moves


def _check_spread(mean: float, deviation: float) -> None:
    if not (math.isfinite(mean) and 0 < deviation < math.inf):
        raise ConfigError("moves have a finite mean and a deviation above 0")


def _logistic(odds: FloatArray) -> FloatArray:
    """From log-odds to a probability."""
    return 1 / (1 + np.exp(-np.clip(odds, -_SURE, _SURE)))


def _locate(moves: FloatArray, freedom: float) -> tuple[float, float]:
    plain = float(moves.std())
    mean, scale = float(np.median(moves)), plain
    for _ in range(_EM_STEPS):
        weights = (freedom + 1) / (freedom + ((moves - mean) / scale) ** 2)
        mean = float(np.average(moves, weights=weights))
        scale = max(float(np.sqrt(np.mean(weights * (moves - mean) ** 2))), plain * _LEAST_SCALE)
    return mean, scale


def _likelihood(moves: FloatArray, mean: float, scale: float, freedom: float) -> float:
    """Log-likelihood per move, without the terms that are the same for all."""
    far = np.log1p(((moves - mean) / scale) ** 2 / freedom).mean()
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom) / 2
    return gammas - math.log(scale) - (freedom + 1) / 2 * float(far)


MOVE_PAIRS_MIN: Final = 30
STUDENT_FREEDOMS: Final = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 50.0)
"""Beyond the last, moves are practically Gaussian."""
LEAN_MAX: Final = 2.0
"""Log-odds: seven moves of eight continue, or turn."""
_FAR: Final = 20.0
"""No step multiplies a value by more than e to the 20th: heavy tails would otherwise overflow."""
_NEWTON_STEPS: Final = 25
_RIDGE: Final = 1e-3
"""Keeps the fit finite if all moves reverse, or none does."""
_SURE: Final = 30.0
_EM_STEPS: Final = 40
_LEAST_SCALE: Final = 1e-3
