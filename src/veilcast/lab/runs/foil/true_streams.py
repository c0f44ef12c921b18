"""The true values: streams of numbers from a distribution, or windows of real prices; and what is known of each before.

Foiler and attacker fit distributions to the past. Real days are few, so the past of a day is all the other days:
nothing of a day is known to its foiler or its attackers. Streams of one day share its randomness, and intervals draw
whole days; streams from a distribution count as days of their own.

Real prices are foiled in cents, as they are quoted. A broker sees cents, or the larger cells that it routes by. A
window never crosses a night.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.generators.movers import (
    RevertingMoves,
    SignPersistence,
    StudentMoves,
    fit_student_t,
    geometric_brownian,
    moves_between,
)
from veilcast.foil.generators.noise import MINUTE, SIGMA
from veilcast.foil.random_source import FloatArray, IntArray
from veilcast.lab.data import DAILY
from veilcast.lab.experiment.foil_params import LAWS, StreamParams
from veilcast.lab.experiment.params import file_path
from veilcast.lab.prices import load_daily, load_minutes
from veilcast.lab.user_files import UserSeries, load_series


@dataclass(frozen=True, eq=False)
class ValueHistory:
    """The known past, and what is fitted to it."""

    moves: FloatArray
    relative: bool
    """Whether moves are of logarithms."""
    values: FloatArray | None = None
    """All published values, if they are whole numbers of units."""

    @cached_property
    def student(self) -> StudentMoves:
        return fit_student_t(self.moves, relative=self.relative)

    @cached_property
    def lean(self) -> SignPersistence:
        return SignPersistence.fit(self.moves)

    @cached_property
    def spread(self) -> float:
        return float(self.moves.std())

    @cached_property
    def mean(self) -> float:
        return float(self.moves.mean())


@dataclass(frozen=True, eq=False)
class TrueStreams:
    """Streams of one day, or of a distribution."""

    values: FloatArray
    """[streams, steps]; in units, if there is one."""
    day: IntArray
    """The day of each stream."""
    past: ValueHistory
    seen_past: ValueHistory
    """The past as brokers saw it: in cells, if there are any."""
    unit: float = 0.0
    """Values are multiples of it; 0: there is no unit."""
    width: float = 0.0
    """Width of a cell in units; 0: brokers see values as they are."""
    traded: FloatArray | None = None
    """[streams, steps]: the traded volume, which is public; None for streams from a distribution."""

    def in_cells(self, values: FloatArray) -> FloatArray:
        return np.floor(values / self.width) * self.width if self.width else values


@dataclass(frozen=True, eq=False)
class _Days:
    """Series that no window crosses, in units, each with the other series as its past."""

    prices: tuple[FloatArray, ...]
    traded: tuple[FloatArray | None, ...]
    pasts: tuple[ValueHistory, ...]
    seen: tuple[ValueHistory, ...]
    unit: float
    width: float


def draw_truth(params: StreamParams, rng: np.random.Generator, data: Path | None) -> Iterator[TrueStreams]:
    if params.truth in LAWS:
        yield _by_law(params, rng)
        return
    source = _PriceSource(params.truth, data, params.column, params.length)
    days = _days(source, params.price, params.moves, params.cell)
    empty = True
    every = zip(days.prices, days.traded, days.pasts, days.seen, strict=True)
    for number, (prices, volumes, past, seen) in enumerate(every):
        many = len(prices) // params.length
        if many:
            empty = False
            windows, traded = (
                None if day is None else np.repeat(day[: many * params.length].reshape(many, -1), params.copies, axis=0)
                for day in (prices, volumes)
            )
            assert windows is not None
            yield TrueStreams(windows, np.full(len(windows), number), past, seen, days.unit, days.width, traded)
    if empty:
        raise ConfigError(f"no day of {params.truth} has {params.length} steps")


def _by_law(params: StreamParams, rng: np.random.Generator) -> TrueStreams:
    shape = (params.streams, params.length)
    if params.truth == "gbm":
        law = geometric_brownian(DRIFT, SIGMA, MINUTE)
        moves = law.mean + law.deviation * rng.standard_normal(shape)
        moves[:, 0] = 0
        values = START_PRICE * np.exp(np.cumsum(moves, axis=1))
        past = ValueHistory(law.mean + law.deviation * rng.standard_normal(_PAST_STEPS), relative=True)
    else:
        values = _reverting(REVERTING, shape, rng)
        past = ValueHistory(
            moves_between(_reverting(REVERTING, (1, _PAST_STEPS), rng)[0], relative=False), relative=False
        )
    return TrueStreams(values, np.arange(params.streams), past, past)


def _reverting(law: RevertingMoves, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Begins in the stationary distribution."""
    away = law.deviation * rng.standard_normal(shape)
    away[:, 0] /= np.sqrt(1 - law.keep**2)
    for step in range(1, shape[1]):
        away[:, step] += law.keep * away[:, step - 1]
    return law.mean + away


class _PriceSource(NamedTuple):
    """Real series: of the data folder, or a column of the user's own file."""

    truth: str
    data: Path | None
    column: str
    length: int
    """Steps of a window."""


@lru_cache(maxsize=4)
def _days(source: _PriceSource, price: float, moves: float, cell: float) -> _Days:
    relative = source.truth == "daily"
    found, traded, unit = _read(source)
    series = _scale_series(found, price, moves)
    if price or moves:
        unit = 0.0
    if unit:
        series = tuple(np.round(each / unit) for each in series)
    width = round(cell / unit) if unit else 0
    pasts = _pasts(series, relative, whole=unit > 0)
    celled = tuple(np.floor(each / width) * width for each in series) if width else series
    seen = _pasts(celled, relative, whole=True) if width else pasts
    return _Days(series, traded, pasts, seen, unit, float(width))


def _pasts(series: tuple[FloatArray, ...], relative: bool, *, whole: bool) -> tuple[ValueHistory, ...]:
    found = []
    for number in range(len(series)):
        others = series[:number] + series[number + 1 :]
        moves = [np.diff(np.log(each) if relative else each) for each in others]
        found.append(ValueHistory(np.concatenate(moves), relative, np.concatenate(others) if whole else None))
    return tuple(found)


def _read(source: _PriceSource) -> tuple[tuple[FloatArray, ...], tuple[FloatArray | None, ...], float]:
    """Series that no window crosses, their traded volumes, and the unit of their values."""
    if own := file_path(source.truth):
        return split_series(load_series(Path(own).absolute(), source.column), source.length, own)
    if source.truth == "daily":
        bars = [load_daily(symbol, source.data) for symbol in DAILY.rows]
        return tuple(each.close for each in bars), tuple(each.volume for each in bars), CENT
    minutes = load_minutes(source.truth.upper(), source.data)
    return tuple(minutes.days()), tuple(minutes.traded()), CENT


def split_series(
    series: UserSeries, length: int, name: str
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray | None, ...], float]:
    """The days of a series, or parts of it if it names no days: the past of a part is all other parts."""
    if series.day is not None and series.day[-1] > 0:
        cuts = np.flatnonzero(np.diff(series.day)) + 1
    else:
        parts = min(_PARTS, len(series.values) // length)
        cuts = np.arange(1, max(parts, 1)) * (len(series.values) // max(parts, 1))
    values = np.split(series.values, cuts)
    if len(values) < 2 or not any(len(each) >= length for each in values):
        raise ConfigError(
            f"{name}: its {len(series.values):,} values have no two parts of length {length}: choose a smaller length"
        )
    volumes = np.split(series.volume, cuts) if series.volume is not None else [None] * len(values)
    return tuple(values), tuple(volumes), series.unit


def _scale_series(series: tuple[FloatArray, ...], price: float, moves: float) -> tuple[FloatArray, ...]:
    """Scale to this mean price and this mean size of moves; 0 leaves either as it is."""
    if moves:
        scale = moves / np.abs(np.concatenate([np.diff(each) for each in series])).mean()
        series = tuple(each * scale for each in series)
    if price and moves:
        shift = price - np.concatenate(series).mean()
        return tuple(each + shift for each in series)
    if price:
        scale = price / np.concatenate(series).mean()
        return tuple(each * scale for each in series)
    return series


def activity_proxy(truth: TrueStreams, rng: np.random.Generator) -> FloatArray:
    """How restless each step is, as public data show it, up to a factor.

    For real prices it is the root of the traded volume: the variance of moves grows with it (Clark 1973). Distributions
    have no volume: their proxy is an index that moves approximately as the truth does.
    """
    if truth.traded is not None:
        return np.asarray(np.sqrt(np.maximum(truth.traded, 1.0)), np.float64)
    values, relative = truth.values, truth.past.relative
    moves = np.abs(np.diff(np.log(values) if relative else values, axis=1, prepend=values[:, :1]))
    sums = np.cumsum(moves, axis=1)
    sums[:, _RECENT:] -= np.cumsum(moves, axis=1)[:, :-_RECENT]
    recent = sums / np.minimum(np.arange(1, values.shape[1] + 1), _RECENT)
    # If nothing moved for a while, something else in the market does.
    seen: FloatArray = np.maximum(recent, _CALM * moves.mean()) * np.exp(_BLUR * rng.standard_normal(values.shape))
    return seen


DRIFT: Final = 0.12
START_PRICE: Final = 500.0
REVERTING: Final = RevertingMoves(START_PRICE, 0.9, 1.0)
CENT: Final = 0.01
_PAST_STEPS: Final = 4000
_PARTS: Final = 10
"""Largest number of parts of a series without days."""
_RECENT: Final = 10
_BLUR: Final = 0.5
_CALM: Final = 0.1
