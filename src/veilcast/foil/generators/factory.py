"""The generator factory: generators of attributes, and laws of dependent attributes, from a configuration.

Pure. The domain of an attribute is the declared one of its topic: a true value outside it is refused, fakes are
reflected into it. If neither a deviation nor a history says how far a value may move, a twentieth of the domain does.

Strings have fakes if all possible strings are declared. A string without declared alternatives goes out unchanged with
every candidate.

**Dependent attributes** (P3, end of IV.B). The fakes of the primary attribute are made as usual. Those of a dependent
one are drawn given the primary's value in the same candidate (`dependent`). Otherwise values that do not belong
together would reveal a fake: a large volume at a small price.

- A number that depends on a number follows a line: `line`, slope and intercept, with a `deviation` around it; or all
  three fitted to the histories of both, which then cover the same moments.
- A string that depends on a string follows `given`: for each value of the primary, the probability of each of its own.

**paper**: on the line itself, where the truth is the only candidate that is not.

The part of a dependent attribute beyond its primary is drawn afresh at each step; if it persists in the truth, this
leaks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import VALUES_MAX, AttributeConfig, FoilConfig, GeneratorName
from veilcast.foil.generators.base import Generator
from veilcast.foil.generators.categories import BucketFakes, CellFakes, CodedNumbers, EntropyFakes, Pmf
from veilcast.foil.generators.dependent import ConditionalLaw, ConditionalTable, LinearLaw
from veilcast.foil.generators.forecast_moves import (
    CounterMoves,
    DriftMoves,
    JumpMoves,
    LevelMoves,
    count_decimals,
    resting_values,
)
from veilcast.foil.generators.moran import MoranTrajectories, branching_rate
from veilcast.foil.generators.movers import (
    MOVE_PAIRS_MIN,
    BlockMoves,
    GaussianMoves,
    Mover,
    SignFlipMoves,
    SignPersistence,
    fit_student_t,
    moves_between,
)
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.public_forecast import HISTORY_MIN, PublicForecast, fit_forecast
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.foil.random_source import FloatArray
from veilcast.topics import Integers, Reals, Schema, Strings


class DependentAttribute(NamedTuple):
    primary: int
    """Index of the primary among the attributes of the topic."""
    law: ConditionalLaw[Any]


def make_generator(domain: Strings | Integers | Reals, config: FoilConfig) -> Generator[Any, Any] | None:
    """For codes of strings, in the order of their table, or for numbers; None if the attribute has no fakes."""
    settings = config.attributes.get(domain.attribute, AttributeConfig())
    if not config.k_p:
        return None
    if settings.depends_on:
        return None  # A dependent attribute has no generator of its own.
    if not isinstance(domain, Strings):
        return _make_number_generator(domain, settings, generator_name(settings, config), config.k_p)
    if not settings.values:
        return None
    if not all(isinstance(value, str) for value in settings.values):
        raise attribute_error(domain, "has strings, and its values are numbers")
    paper = settings.generator == "entropy" or (not settings.generator and config.generator == "entropy")
    pmf = Pmf(settings.weights or [1.0] * len(settings.values))
    return _make_code_fakes(settings, "entropy" if paper else "bucketing", config.k_p, pmf)


def make_dependent(domain: Strings | Integers | Reals, schema: Schema, config: FoilConfig) -> DependentAttribute | None:
    """None for an attribute without a primary, or if nothing is foiled."""
    settings = config.attributes.get(domain.attribute, AttributeConfig())
    if not settings.depends_on or not config.k_p:
        return None
    index = next((at for at, each in enumerate(schema.domains) if each.attribute == settings.depends_on), None)
    if index is None:
        raise attribute_error(domain, f"depends on {settings.depends_on!r}, which its topic does not declare")
    primary, primary_settings = schema.domains[index], config.attributes.get(settings.depends_on, AttributeConfig())
    if primary_settings.depends_on:
        raise attribute_error(domain, f"depends on {settings.depends_on!r}, which is itself a dependent attribute")
    if isinstance(domain, Strings) != isinstance(primary, Strings):
        raise attribute_error(
            domain,
            f"cannot depend on {settings.depends_on!r}: a number can depend on a number, and a string on a string",
        )
    if isinstance(domain, Strings):
        return DependentAttribute(index, _make_table(domain, settings, primary_settings))
    return DependentAttribute(index, _make_line(domain, settings, primary_settings, paper=config.profile == "paper"))


def generator_name(settings: AttributeConfig, config: FoilConfig) -> GeneratorName:
    """The generator of a number."""
    if settings.generator or config.generator:
        return settings.generator or config.generator
    if config.profile == "paper":
        return "noise"
    return "moran" if settings.public_after else _choose_kind(settings)


def attribute_error(domain: Strings | Integers | Reals, what: str) -> ConfigError:
    """An error about the configuration of this attribute."""
    return ConfigError(f"foil.attributes.{domain.attribute}: the attribute {what}")


def _make_number_generator(
    domain: Integers | Reals, settings: AttributeConfig, kind: GeneratorName, k: int
) -> Generator[Any, np.float64]:
    if settings.relative and domain.low <= 0:
        raise attribute_error(domain, "has values down to 0, and relative steps need values above 0")
    domain_of_fakes = NumericDomain(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    match kind:
        case "noise":
            scale = _deviation(domain, settings)
            return NoiseFakes(k, scale, power=int(settings.relative), domain=domain_of_fakes)
        case "window":
            if settings.relative:
                raise attribute_error(domain, "has a window, whose deviation is absolute; remove relative")
            return WindowFakes(k, _deviation(domain, settings), domain_of_fakes)
        case "bucketing" | "entropy":
            if not settings.values and settings.history:
                return _make_cell_fakes(domain, settings, kind, k)
            table = _value_table(domain, settings)
            pmf = Pmf(settings.weights or np.ones(len(table)))
            order = np.argsort(table)
            pmf = Pmf(pmf.p[order])
            return CodedNumbers(table[order], _make_code_fakes(settings, kind, k, pmf))
        case "trajectories":
            return Trajectories(k, _make_mover(domain, settings), domain_of_fakes)
        case "moran":
            if not settings.public_after:
                raise attribute_error(
                    domain, "has moran, which needs public_after: the number of steps after which values are public"
                )
            return MoranTrajectories(
                Trajectories(k, _make_mover(domain, settings), domain_of_fakes),
                branching_rate(k + 1, settings.public_after),
            )
        case "forecast" | "counter" | "jumps":
            return Trajectories(k, _make_forecast_mover(domain, settings, kind), domain_of_fakes)
        case _:
            return Trajectories(k, _make_sign_flip(settings), domain_of_fakes)


def _make_code_fakes(settings: AttributeConfig, kind: GeneratorName, k: int, pmf: Pmf) -> EntropyFakes | BucketFakes:
    if kind == "entropy":
        return EntropyFakes(k, pmf)
    return BucketFakes(k, pmf, settings.buckets, settings.cache, settings.match)


def _make_cell_fakes(
    domain: Integers | Reals, settings: AttributeConfig, kind: GeneratorName, k: int
) -> CellFakes[Any]:
    """The weight of a cell is its share of the history, and a little more, because any value can come."""
    cells = 1 << min(domain.bits, CELL_BITS_MAX)
    width = (domain.high - domain.low) / cells
    empty = CellFakes(domain.low, width, EntropyFakes(k, Pmf(np.ones(2))), cells)
    counts = np.bincount(empty.codes(np.array(settings.history)), minlength=cells)
    pmf = Pmf(counts + _UNSEEN * len(settings.history) / cells)
    return CellFakes(domain.low, width, _make_code_fakes(settings, kind, k, pmf), cells)


def _make_forecast_mover(domain: Integers | Reals, settings: AttributeConfig, kind: GeneratorName) -> Mover[Any]:
    if settings.relative:
        raise attribute_error(domain, f"has the generator {kind!r}, whose moves are absolute; remove relative")
    if not settings.history:
        raise attribute_error(domain, f"has the generator {kind!r}, which is fitted to a history")
    first = len(settings.history) if settings.phase < 0 else settings.phase
    try:
        mover = _fit_forecast_mover(msgspec.structs.replace(settings, phase=0), kind)
        return mover if isinstance(mover, JumpMoves) else replace(mover, first_step=first)
    except LocalError as error:
        raise attribute_error(domain, f"has the generator {kind!r}: {error}") from error


@lru_cache(maxsize=16)
def _fit_forecast_mover(settings: AttributeConfig, kind: GeneratorName) -> Any:
    """Fit at step 0. It takes up to some seconds, and every session asks for it."""
    history, first = np.array(settings.history), 0
    decimals = count_decimals(history)
    if kind == "counter":
        return CounterMoves.fit(history, period=settings.period, first_step=first, decimals=decimals)
    if kind == "jumps":
        return JumpMoves(LevelMoves(fit_forecast(resting_values(history), period=0), 0, decimals))
    forecast = fit_forecast(history, period=settings.period)
    if forecast.returns:
        return LevelMoves(forecast, first, decimals)
    return DriftMoves(forecast, first, _make_sign_flip(settings, forecast), decimals)


def _choose_kind(settings: AttributeConfig) -> GeneratorName:
    return _fit_kind(msgspec.structs.replace(settings, phase=0)) if settings.history else "sign-flip"


@lru_cache(maxsize=16)
def _fit_kind(settings: AttributeConfig) -> GeneratorName:
    """The default generator of a number: what its history looks like."""
    if len(settings.history) < HISTORY_MIN or settings.relative:
        return "sign-flip"
    history = np.array(settings.history)
    moves = np.diff(history)
    ups, downs = np.count_nonzero(moves > 0), np.count_nonzero(moves < 0)
    if min(ups, downs) <= len(moves) * _RESETS_SHARE and max(ups, downs) >= HISTORY_MIN:
        return "counter"
    if ups + downs <= len(moves) * (1 - _RESTS_SHARE):
        return "jumps" if ups + downs >= HISTORY_MIN else "sign-flip"
    return "sign-flip" if fit_forecast(history, period=settings.period).is_empty else "forecast"


def _make_sign_flip(settings: AttributeConfig, forecast: PublicForecast | None = None) -> SignFlipMoves:
    return SignFlipMoves(settings.block, settings.relative, _make_persistence(settings, forecast), growing=True)


def _deviation(domain: Integers | Reals, settings: AttributeConfig) -> float:
    if settings.deviation:
        return settings.deviation
    if settings.history:
        return float(_history_moves(settings).std())
    return 0.05 if settings.relative else (domain.high - domain.low) / 20


def _make_mover(domain: Integers | Reals, settings: AttributeConfig) -> Mover[Any]:
    if settings.law == "gaussian":
        mean = float(_history_moves(settings).mean()) if settings.history and not settings.deviation else 0.0
        return GaussianMoves(mean, _deviation(domain, settings), settings.relative)
    if not settings.history:
        raise attribute_error(domain, f"has moves of the law {settings.law!r}, which is fitted to a history")
    moves = _history_moves(settings)
    if settings.law == "student":
        return fit_student_t(moves, relative=settings.relative)
    return BlockMoves(moves, min(settings.block, len(moves)), settings.relative)


def _make_persistence(settings: AttributeConfig, forecast: PublicForecast | None = None) -> SignPersistence:
    if len(settings.history) <= 2 * MOVE_PAIRS_MIN:
        return SignPersistence(*settings.lean)
    moves = _history_moves(settings)
    if forecast is not None:
        moves = moves - forecast.expect_moves(np.arange(1, len(moves) + 1))
    try:
        return SignPersistence.fit(moves).bounded(moves)
    except LocalError:  # It rests too often to tell.
        return SignPersistence(*settings.lean)


def _history_moves(settings: AttributeConfig) -> FloatArray:
    return moves_between(np.array(settings.history), relative=settings.relative)


def _value_table(domain: Integers | Reals, settings: AttributeConfig) -> FloatArray:
    if settings.values:
        if any(isinstance(value, str) or not domain.low <= value <= domain.high for value in settings.values):
            raise attribute_error(domain, "has values that are not in its declared domain")
        return np.array(settings.values, dtype=np.float64)
    if isinstance(domain, Reals) or domain.high - domain.low >= VALUES_MAX:
        raise attribute_error(domain, "has too many values to draw from: list them in values")
    return np.arange(domain.low, domain.high + 1, dtype=np.float64)


def _make_line(
    domain: Integers | Reals, settings: AttributeConfig, primary_settings: AttributeConfig, *, paper: bool
) -> LinearLaw:
    domain_of_fakes = NumericDomain(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    if settings.line is not None:
        if not settings.deviation and not paper:
            raise attribute_error(
                domain, "has a line, and needs the deviation around it: a value on the line would be a fake"
            )
        return LinearLaw(*settings.line, 0.0 if paper else settings.deviation, domain_of_fakes)
    if not settings.history or len(settings.history) != len(primary_settings.history):
        raise attribute_error(
            domain, f"depends on {settings.depends_on!r}: give a line, or histories of equal length for both"
        )
    try:
        fitted = LinearLaw.fit(np.array(primary_settings.history), np.array(settings.history), domain_of_fakes)
    except LocalError as error:
        raise attribute_error(domain, f"depends on {settings.depends_on!r}: {error}") from error
    return LinearLaw(
        fitted.slope, fitted.intercept, 0.0 if paper else settings.deviation or fitted.deviation, domain_of_fakes
    )


def _make_table(domain: Strings, settings: AttributeConfig, primary_settings: AttributeConfig) -> ConditionalTable:
    if not settings.values or not primary_settings.values:
        raise attribute_error(domain, f"depends on {settings.depends_on!r}: both need their values")
    if len(settings.given) != len(primary_settings.values) or any(
        len(row) != len(settings.values) for row in settings.given
    ):
        raise attribute_error(
            domain, "needs in given, for each value of its primary, the probability of each of its own"
        )
    try:
        return ConditionalTable(settings.given)
    except ConfigError as error:
        raise attribute_error(domain, f"has an invalid given: {error}") from error


CELL_BITS_MAX: Final = 16
_UNSEEN: Final = 0.01
"""Share of values that the history has not seen."""
_RESETS_SHARE: Final = 1 / 500
"""A counter goes the other way at most in this share of its moves: when it is replaced, or runs over."""
_RESTS_SHARE: Final = 1 / 3
"""A value that rests in at least this share of its steps rests and jumps."""
