"""A public forecast of a series of numbers, fitted to its history: season, reversion to a level, growth.

Pure. An observer who knows how a value usually goes, knows more than its past moves: a room is warm in the afternoon, a
meter never goes back. Fakes must follow the same forecast, and only the forecast's errors can hide the truth.

1. The forecast of a value is linear in a constant, in the last values, and in waves of the season: for each harmonic of
   the period a sine and a cosine of the step. All coefficients are fitted together, by least squares.
2. The number of waves has the least Bayesian information criterion, that of last values the least of Akaike's.
3. A value that returns to a level depends on the last value by clearly less than 1 (the test of Dickey and Fuller).
   Otherwise the moves are forecast, and a constant or a season is used only if it is significant: a drift that is an
   accident of the history would set all fakes apart from the truth.
4. The coefficients are known up to their covariance. `draw_coefficients` draws others that the history allows. If every
   fake has its own, the error of the fit is not common to all fakes, which would set them apart from the truth.
5. The period is the step count after which the forecast errors repeat: the highest peak of the periodogram, if it is
   too high for an accident. A declared period is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from veilcast.errors import LocalError
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource


@dataclass(frozen=True, eq=False)
class PublicForecast:
    """The expected next value, or the expected next move if the value does not return to a level."""

    period: int
    """Length of the season in steps; 0 if there is none."""
    waves: int
    lags: int
    """Number of last values that it depends on; 0: it forecasts moves."""
    coefficients: FloatArray
    """Of the constant, the last values (as distances from `centre`), and the sine and cosine of each wave."""
    covariance: FloatArray
    errors: FloatArray
    """The forecast's errors on the history, in increasing order."""
    centre: float

    @property
    def returns(self) -> bool:
        """Whether the value returns to a level."""
        return self.lags > 0

    @property
    def is_empty(self) -> bool:
        """Whether it says no more than that the value stays."""
        return not self.lags and not self.waves and not self.coefficients.any()

    def expect(self, step: int, past: FloatArray, coefficients: FloatArray) -> FloatArray:
        """The expected values, or moves, at `step`: `past` is [..., lags], the youngest first; coefficients are
        [..., size]."""
        terms = [np.ones((*coefficients.shape[:-1], 1))]
        if self.lags:
            terms.append(past[..., : self.lags] - self.centre)
        terms.append(
            np.broadcast_to(season_terms(np.array([step]), self.period, self.waves)[0], _wide(coefficients, self.waves))
        )
        found: FloatArray = (np.concatenate(terms, axis=-1) * coefficients[..., : len(self.coefficients)]).sum(axis=-1)
        return found + self.centre if self.lags else found

    def expect_moves(self, steps: IntArray) -> FloatArray:
        """The expected moves at these steps, of a forecast of moves."""
        found: FloatArray = self.coefficients[0] + season_terms(steps, self.period, self.waves) @ self.coefficients[1:]
        return found

    def expect_level(self, steps: IntArray) -> FloatArray:
        """The level that the value returns to at these steps: what the forecast says of itself, without errors."""
        past, found = np.full(self.lags, self.centre), np.empty(max(self.period, 1))
        for step in range(-_SETTLED, len(found)):
            expected = float(self.expect(step, past, self.coefficients))
            past = np.concatenate([[expected], past[:-1]])
            if step >= 0:
                found[step] = expected
        return found[np.asarray(steps) % len(found)]

    def draw_coefficients(self, streams: int, n: int, rng: RandomSource) -> FloatArray:
        """[streams, n, size + WARPS]: coefficients that the history allows, and how far the law of the errors may be
        from the errors that the history had. Those of a value that would never return are replaced by the fitted
        ones."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        drawn = self.coefficients + rng.standard_normal((streams, n, len(values))) @ root.T
        if self.lags:
            weak = np.abs(drawn[..., 1 : 1 + self.lags]).sum(axis=-1) >= _STAYS
            drawn[weak] = self.coefficients
        warps = rng.standard_normal((streams, n, WARPS)) / np.sqrt(len(self.errors))
        if self.covariance.any():
            warps[..., 0] = 0  # The constant moves all errors already.
        return np.concatenate([drawn, warps], axis=-1)

    def draw_errors(self, coefficients: FloatArray, rng: RandomSource) -> FloatArray:
        """[streams, n]: errors as those of the history.

        The shares of a sample wander around those of its law by a Brownian bridge. Its first terms (Karhunen and Loeve)
        are sines, and the warps are their sizes."""
        shares = rng.random(coefficients.shape[:-1])
        waves = np.arange(1, WARPS + 1) * np.pi
        bridge = (coefficients[..., -WARPS:] * np.sqrt(2) / waves * np.sin(shares[..., None] * waves)).sum(axis=-1)
        return draw_quantiles(self.errors, np.clip(shares + bridge, _RARE, 1 - _RARE))


def fit_forecast(history: FloatArray, *, period: int = -1, stationary: bool | None = None) -> PublicForecast:
    """Fit to a history without gaps. `period` 0 says that there is no season, -1 that it is to be found; `stationary`
    says whether the value returns to a level, None that it is to be tested. Raises `LocalError` for fewer than
    `HISTORY_MIN` values."""
    if history.ndim != 1 or len(history) < HISTORY_MIN or not np.isfinite(history).all():
        raise LocalError(f"a forecast is fitted to {HISTORY_MIN} finite values or more")
    if not np.ptp(history) > 0:
        raise LocalError("a history of one value says nothing about other values")
    period = find_period(history) if period < 0 else period
    centre = float(history.mean())
    away = history - centre
    waves = min(_waves_for(period, len(history)), key=lambda waves: _fit_level(away, period, waves, _LAGS[1]).criterion)
    fits = [_fit_level(away, period, waves, lags) for lags in _LAGS if lags <= _longest_lag(len(history))]
    best = min(fits, key=lambda fit: fit.prediction)
    if stationary is None:
        stationary = _returns(best, seasonal=best.waves > 0)
    if stationary:
        return PublicForecast(
            period if best.waves else 0,
            best.waves,
            best.lags,
            best.coefficients,
            best.covariance,
            np.sort(best.errors),
            centre,
        )
    return _forecast_moves(np.diff(history), period, centre)


def find_period(history: FloatArray) -> int:
    """The period of a season in steps, or 0. Needs two whole periods of history, better four."""
    history = history[-_SEARCHED:]
    past, now = history[:-1] - history.mean(), history[1:] - history.mean()
    keep = float(np.clip(past @ now / max(past @ past, _TINY), -1, 1))
    errors = now - keep * past
    power = np.abs(np.fft.rfft(errors - errors.mean())) ** 2
    power[:2] = 0
    # Neighbouring frequencies say how much is usual there: the spectrum of the errors need not be flat.
    usual = np.empty(len(power))
    for first in (1 << octave for octave in range(len(power).bit_length())):
        usual[first : 2 * first] = np.median(power[max(2, first // 2) : 2 * first + _NEAR]) / np.log(2)
    usual[0] = usual[-1]
    heights = np.where(usual > 0, power / np.maximum(usual, _TINY), 0)
    peak = int(heights.argmax())
    if heights[peak] < np.log(len(power)) + _CLEAR:
        return 0
    found = [round(len(errors) / (peak + off) * many) for off in (-0.5, -0.25, 0, 0.25, 0.5) for many in (1, 2, 3)]
    near = sorted(dict.fromkeys(each + off for each in found for off in range(-2, 3)))
    periods = [each for each in near if PERIOD_MIN <= each <= len(history) // 2]
    if not periods:
        return 0
    fits = {
        each: min(_fit_level(history - history.mean(), each, waves, 1).criterion for waves in (1, 2, 4))
        for each in periods
    }
    return min(fits, key=lambda each: fits[each])


def season_terms(steps: IntArray, period: int, waves: int) -> FloatArray:
    """[steps, 2 waves]: the sine and the cosine of each wave."""
    if not waves:
        return np.zeros((len(steps), 0))
    angles = 2 * np.pi / period * (steps[:, None] % period) * np.arange(1, waves + 1)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def draw_quantiles(ordered: FloatArray, shares: FloatArray, *, floor: bool = False) -> FloatArray:
    """The values of an ordered sample at these shares of it: between two of its members by proportion, and in the last
    twentieth at either end by an exponential law, because the sample has not seen the largest value that can be. With
    `floor` true, no value is below the sample's least."""
    size = len(ordered)
    tail = max(_TAIL_MIN, size // 20)
    at = np.clip(shares, 0, 1) * (size - 1)
    below = np.minimum(at.astype(np.int64), size - 2)
    found = ordered[below] + (at - below) * (ordered[below + 1] - ordered[below])
    found = _extend(ordered, found, 1 - shares, tail)
    return found if floor else -_extend(-ordered[::-1], -found, shares, tail)


def _extend(ordered: FloatArray, found: FloatArray, above: FloatArray, tail: int) -> FloatArray:
    start, share = ordered[-tail - 1], tail / len(ordered)
    mean = float((ordered[-tail:] - start).mean())
    return np.asarray(
        np.where(above < share, start + mean * np.log(share / np.maximum(above, _RARE)), found), np.float64
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    waves: int
    lags: int
    coefficients: FloatArray
    covariance: FloatArray
    errors: FloatArray
    criterion: float
    """Bayes's, for the number of waves: too many would be waves of the history's noise."""
    prediction: float
    """Akaike's, for the number of last values: too few would end what lasts too soon."""


def _fit_level(values: FloatArray, period: int, waves: int, lags: int) -> _Fit:
    start = _longest_lag(len(values))
    steps = np.arange(start, len(values))
    terms = [np.ones((len(steps), 1)), *(values[start - lag : len(values) - lag, None] for lag in range(1, lags + 1))]
    return _least_squares(
        np.concatenate([*terms, season_terms(steps, period, waves)], axis=1), values[start:], waves, lags
    )


def _longest_lag(steps: int) -> int:
    return min(_LAGS[-1], steps // 10)


def _forecast_moves(moves: FloatArray, period: int, centre: float) -> PublicForecast:
    """A constant and a season of moves, each only if it is significant."""
    steps = np.arange(1, len(moves) + 1)
    nothing = float(np.log(np.mean(moves**2)) * len(moves))
    best, least = None, nothing
    for waves in _waves_for(period, len(moves)):
        fit = _least_squares(
            np.concatenate([np.ones((len(moves), 1)), season_terms(steps, period, waves)], axis=1), moves, waves, 0
        )
        if fit.criterion + _SIGNIFICANT * (1 + 2 * waves) < least:
            best, least = fit, fit.criterion + _SIGNIFICANT * (1 + 2 * waves)
    if best is None:
        return PublicForecast(0, 0, 0, np.zeros(1), np.zeros((1, 1)), np.sort(moves), centre)
    return PublicForecast(
        period if best.waves else 0, best.waves, 0, best.coefficients, best.covariance, np.sort(best.errors), centre
    )


def _least_squares(terms: FloatArray, values: FloatArray, waves: int, lags: int) -> _Fit:
    inverse = np.linalg.pinv(terms.T @ terms)
    coefficients = inverse @ (terms.T @ values)
    errors = values - terms @ coefficients
    freedom = max(1, len(values) - terms.shape[1])
    variance = max(float(errors @ errors) / freedom, _TINY)
    misfit = len(values) * np.log(max(float(np.mean(errors**2)), _TINY))
    size, steps = terms.shape[1], len(values)
    return _Fit(
        waves,
        lags,
        coefficients,
        variance * inverse,
        errors,
        float(misfit + size * np.log(steps)),
        float(misfit + 2 * size),
    )


def _returns(fit: _Fit, *, seasonal: bool) -> bool:
    if not fit.lags:
        return True
    own = slice(1, 1 + fit.lags)
    keep, deviation = fit.coefficients[own].sum(), np.sqrt(fit.covariance[own, own].sum())
    return bool((keep - 1) / max(float(deviation), _TINY) < (_RETURNS_SEASONAL if seasonal else _RETURNS))


def _waves_for(period: int, steps: int) -> tuple[int, ...]:
    if not period:
        return (0,)
    return tuple(waves for waves in _WAVES if 2 * waves < period and 2 * waves < steps // 10)


def _wide(coefficients: FloatArray, waves: int) -> tuple[int, ...]:
    return (*coefficients.shape[:-1], 2 * waves)


HISTORY_MIN: Final = 31
PERIOD_MIN: Final = 4
_LAGS: Final = (1, 2, 3, 5, 8, 12)
_WAVES: Final = (0, 1, 2, 3, 4, 6, 8, 12)
WARPS: Final = 6
_TAIL_MIN: Final = 3
_RARE: Final = 1e-9
_SEARCHED: Final = 1 << 15
"""Values of a long history in which a period is searched."""
_NEAR: Final = 20
_CLEAR: Final = 9.0
"""A peak this far above the largest that chance makes: once in 8,000 histories."""
_RETURNS: Final = -3.6
_RETURNS_SEASONAL: Final = -2.6
"""Of the test's statistic: below it, a value without and with a season counts as one that returns to a level."""
_SIGNIFICANT: Final = 6.0
"""Beyond the information criterion, for each coefficient of a forecast of moves."""
_STAYS: Final = 0.999
_SETTLED: Final = 2000
"""Steps after which the start of a forecast no longer shows."""
_TINY: Final = 1e-300
