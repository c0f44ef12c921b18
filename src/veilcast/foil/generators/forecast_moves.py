"""Movers around a public forecast: for values with a season or a level, for drifts, for counters, and for values that
rest and jump.

Pure. `public_forecast` fits what everybody expects of a value. The movers here differ in how they draw what nobody can
expect, the forecast's error:

- **`LevelMoves`**: each fake follows the forecast from its own last values, with errors drawn from those of the
  history. Fakes return to the level as the truth does. Copied errors would not hide a value that returns quickly: after
  each step all fakes would stand at one of two values.
- **`DriftMoves`**: the forecast is of moves. Around it fakes go as far as the truth, in random directions: sign-flip of
  what is left after the drift or the season of moves.
- **`CounterMoves`**: a meter grows, by amounts of its own law. The amounts are divided by their season, and their ranks
  in the history become normal numbers that a forecast of its own continues; so amounts are never negative, have the
  law of the history, and stay large or small for as long as they do. If the true counter falls (it was replaced, or
  ran over), all fakes begin at its new value, which is thereby public.
- **`JumpMoves`**: fakes jump when the truth does, and rest when it rests; where they jump to is drawn by the forecast
  of the values between which the history jumps. Times of jumps hide nothing then, and reveal nothing.

Every fake has its own coefficients out of those that the history allows. If the history is written in decimals, fakes
are rounded to as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from statistics import NormalDist
from typing import Any, Final, Generic, Self

import numpy as np

from veilcast.errors import LocalError
from veilcast.foil.generators.movers import Memory, Mover
from veilcast.foil.generators.public_forecast import (
    HISTORY_MIN,
    PublicForecast,
    draw_quantiles,
    find_period,
    fit_forecast,
    season_terms,
)
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource


@dataclass(frozen=True, eq=False)
class ForecastState:
    """The state of one stream or of many, which take their steps together."""

    step: int
    """Steps since the start of the history."""
    coefficients: FloatArray
    """[streams, n, size]: the forecast of each fake."""
    past: FloatArray
    """[streams, n, ...]: the values before the last one, the youngest first; for forecasts of moves, their sum."""
    inner: Any = None
    """Of the mover of what the forecast leaves, or of a second forecast."""


@dataclass(frozen=True, eq=False)
class LevelMoves:
    forecast: PublicForecast
    first_step: int
    """The step of the first event: the length of the history, if events continue it."""
    decimals: int | None = None

    def begin(self, streams: int, n: int, rng: RandomSource) -> ForecastState:
        coefficients = self.forecast.draw_coefficients(streams, n, rng)
        return ForecastState(self.first_step, coefficients, np.zeros((streams, n, 0)))

    def move(
        self, memory: ForecastState, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[ForecastState, FloatArray]:
        past = (
            values[..., None]
            if not memory.past.shape[-1]
            else np.concatenate([values[..., None], memory.past], axis=-1)
        )
        lags = self.forecast.lags
        full = past if past.shape[-1] >= lags else np.repeat(past[..., -1:], lags, axis=-1)
        if past.shape[-1] < lags:
            full[..., : past.shape[-1]] = past
        step = memory.step + 1
        expected = self.forecast.expect(step, full, memory.coefficients)
        moved = expected + self.forecast.draw_errors(memory.coefficients, rng)
        if not self.forecast.returns:
            moved += values
        after = ForecastState(step, memory.coefficients, past[..., : max(lags - 1, 0)])
        return after, _round(moved, self.decimals)

    def inherit(self, memory: ForecastState, rows: IntArray, parent: IntArray, victim: IntArray) -> ForecastState:
        past = memory.past.copy()
        past[rows, victim] = past[rows, parent]
        return ForecastState(memory.step, memory.coefficients, past)


@dataclass(frozen=True, eq=False)
class DriftMoves(Generic[Memory]):
    """`around` moves what is left of the values without the forecast."""

    forecast: PublicForecast
    first_step: int
    around: Mover[Memory]
    decimals: int | None = None

    def begin(self, streams: int, n: int, rng: RandomSource) -> ForecastState:
        coefficients = self.forecast.draw_coefficients(streams, n, rng)
        inner = self.around.begin(streams, n, rng)
        return ForecastState(self.first_step, coefficients, np.zeros((streams, n, 1)), inner)

    def move(
        self, memory: ForecastState, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[ForecastState, FloatArray]:
        step = memory.step + 1
        expected = memory.past + self.forecast.expect(step, values[..., None], memory.coefficients)[..., None]
        own = self.forecast.expect(step, before[..., None], np.tile(self.forecast.coefficients, (len(before), 1)))
        inner, moved = self.around.move(memory.inner, values - memory.past[..., 0], before, now - own, rng)
        after = ForecastState(step, memory.coefficients, expected, inner)
        return after, _round(moved + expected[..., 0], self.decimals)

    def inherit(self, memory: ForecastState, rows: IntArray, parent: IntArray, victim: IntArray) -> ForecastState:
        inner = self.around.inherit(memory.inner, rows, parent, victim)
        past = memory.past.copy()
        past[rows, victim] = past[rows, parent]
        return ForecastState(memory.step, memory.coefficients, past, inner)


@dataclass(frozen=True, eq=False)
class CounterMoves:
    amounts: FloatArray
    """Amounts of the history without their season, in increasing order."""
    scores: PublicForecast
    """The forecast of scores: an amount's score is the standard normal number with as large a share of smaller ones.
    What lasts in normal numbers leaves them normal, so amounts keep their law."""
    period: int
    season: FloatArray
    """Coefficients of the expected amount: of a constant, and of the sine and cosine of each wave."""
    first_step: int
    direction: float = 1.0
    """-1: the counter goes down."""
    decimals: int | None = None

    @classmethod
    def fit(cls, history: FloatArray, *, period: int, first_step: int, decimals: int | None) -> Self:
        amounts = np.diff(history)
        direction = 1.0 if amounts.sum() > 0 else -1.0
        amounts = np.maximum(amounts * direction, 0.0)
        if len(amounts) < HISTORY_MIN or not np.ptp(amounts) > 0:
            raise LocalError(f"a counter is fitted to {HISTORY_MIN} amounts or more that are not all equal")
        period = find_period(amounts) if period < 0 else period
        found = fit_forecast(amounts, period=period, stationary=True)
        waves = found.waves
        steps = np.arange(1, len(amounts) + 1)
        terms = np.concatenate([np.ones((len(amounts), 1)), season_terms(steps, period, waves)], axis=1)
        season = np.linalg.pinv(terms) @ amounts
        plain = amounts / _expected_amount(season, steps, period)
        ordered = np.sort(plain)
        # Equal amounts, such as none at all, are spread over their shares evenly; no randomness is needed for that.
        low, high = np.searchsorted(ordered, plain, "left"), np.searchsorted(ordered, plain, "right")
        share = (low + (high - low) * ((np.arange(len(plain)) * _GOLDEN) % 1.0) + _HALF) / (len(plain) + 2 * _HALF)
        scores = np.array([_NORMAL.inv_cdf(each) for each in share])
        forecast = fit_forecast(scores, period=0, stationary=True)
        return cls(ordered, forecast, period if waves else 0, season, first_step, direction, decimals)

    def begin(self, streams: int, n: int, rng: RandomSource) -> ForecastState:
        coefficients = self.scores.draw_coefficients(streams, n, rng)
        return ForecastState(self.first_step, coefficients, rng.standard_normal((streams, n, self.scores.lags)))

    def move(
        self, memory: ForecastState, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[ForecastState, FloatArray]:
        step = memory.step + 1
        scores = self.scores.expect(step, memory.past, memory.coefficients)
        scores = scores + self.scores.draw_errors(memory.coefficients, rng)
        past = np.concatenate([scores[..., None], memory.past[..., :-1]], axis=-1)
        amounts = draw_quantiles(self.amounts, _normal_share(scores), floor=True)
        amounts = amounts * _expected_amount(self.season, np.array([step]), self.period)[0]
        moved = _round(values + self.direction * amounts, self.decimals)
        fell = (now - before) * self.direction < 0
        return ForecastState(step, memory.coefficients, past), np.where(fell[:, None], now[:, None], moved)

    def inherit(self, memory: ForecastState, rows: IntArray, parent: IntArray, victim: IntArray) -> ForecastState:
        """Copies nothing: a child with its parent's amounts would stay beside it."""
        return memory


@dataclass(frozen=True, eq=False)
class JumpMoves:
    jumps: LevelMoves
    """From one resting value to the next."""

    def begin(self, streams: int, n: int, rng: RandomSource) -> ForecastState:
        return self.jumps.begin(streams, n, rng)

    def move(
        self, memory: ForecastState, values: FloatArray, before: FloatArray, now: FloatArray, rng: RandomSource
    ) -> tuple[ForecastState, FloatArray]:
        jumps = (now != before)[:, None]
        after, moved = self.jumps.move(memory, values, before, now, rng)
        if not jumps.any():
            return memory, values
        if memory.past.shape == after.past.shape:
            after = ForecastState(after.step, after.coefficients, np.where(jumps[..., None], after.past, memory.past))
        return after, np.where(jumps, moved, values)

    def inherit(self, memory: ForecastState, rows: IntArray, parent: IntArray, victim: IntArray) -> ForecastState:
        return self.jumps.inherit(memory, rows, parent, victim)


def resting_values(history: FloatArray) -> FloatArray:
    """The values between which a history jumps, each once for each time that it rested there."""
    return np.asarray(history[np.concatenate([[True], np.diff(history) != 0])], np.float64)


def count_decimals(history: FloatArray) -> int | None:
    """The decimals that the values are written with; None if they are more than `DECIMALS_MAX`."""
    for decimals in range(DECIMALS_MAX + 1):
        if (np.round(history, decimals) == history).all():
            return decimals
    return None


def _expected_amount(season: FloatArray, steps: IntArray, period: int) -> FloatArray:
    """The mean amount at these steps: above 0 at all of them."""
    waves = (len(season) - 1) // 2
    found: FloatArray = season[0] + season_terms(steps, period, waves) @ season[1:]
    return np.asarray(np.maximum(found, season[0] * _LEAST_SHARE), np.float64)


def _normal_share(scores: FloatArray) -> FloatArray:
    """The share of standard normal numbers below each score."""
    return np.array([erfc(-score / sqrt(2)) / 2 for score in scores.ravel().tolist()]).reshape(scores.shape)


def _round(values: FloatArray, decimals: int | None) -> FloatArray:
    return values if decimals is None else np.asarray(np.round(values, decimals), np.float64)


DECIMALS_MAX: Final = 6
_GOLDEN: Final = 0.6180339887498949
"""Its multiples modulo 1 are spread evenly."""
_HALF: Final = 0.5
_NORMAL: Final = NormalDist()
_LEAST_SHARE: Final = 0.1
"""The least expected amount, as a share of the mean one."""
