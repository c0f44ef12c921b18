"""How well foiling hides a series of the user's own: the member's generator on it, attacked by the lab's attackers.

1. The series is cut into windows. In each the member starts afresh, as often as `copies` says, and foils the window by
   the generator that its settings give; the broker sees cells. Where the settings have a history, a window continues
   it at its own step of the season.
2. The attackers know everything but the randomness: the generator, the laws of the truth's moves and signs, what is
   expected of the value at each step, and how the owner rounds. All of it is fitted to the whole series: a broker's
   own past could not tell it better. One attacker is trained: it foils other windows itself.
3. They see the candidates twice. **By slot** they are granted to follow each fake from step to step: the worst case.
   **Shuffled** is what a broker gets.
4. `message` is how often the best attacker names the true message, `value` how often it names the true value, in any
   message. The best one is chosen on half of the windows and measured on the other half: the largest of many measured
   rates would be above a guess even if all attackers only guess. The first event of a window is public and does not
   count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.factory import generator_name, make_generator
from veilcast.foil.generators.forecast_moves import count_decimals
from veilcast.foil.generators.movers import SignPersistence, fit_student_t
from veilcast.foil.generators.public_forecast import PublicForecast, fit_forecast
from veilcast.foil.topic_names import levels_per_attribute
from veilcast.lab.attack.registry import applies, attackers_on, score_candidates
from veilcast.lab.attack.stream.many_steps import count_endings
from veilcast.lab.attack.stream.model import MoveLaw, SignLaw, StreamModel, StreamObservations
from veilcast.lab.attack.stream.trained import fit_logit
from veilcast.lab.audit.value_causes import Cause, CheckedSettings, find_causes
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates, value_known
from veilcast.lab.measure.strongest_attacker import find_strongest
from veilcast.topics import Integers, Reals, Schema

Numbers = NDArray[np.float64]


class CheckPlan(NamedTuple):
    length: int = 200
    """Events of a window."""
    windows: int = 48
    """Windows at most."""
    copies: int = 6
    """How often each window is foiled."""
    seed: int = 0


class AttackerRates(NamedTuple):
    """How often one attacker is right, by window."""

    message: Numbers
    value: Numbers


class BestRate(NamedTuple):
    rate: float
    """Of the best attacker, chosen on half of the windows and measured on the other half."""
    error: float
    """Standard error of the rate, over windows."""
    attacker: str


@dataclass(frozen=True, eq=False)
class BestRates:
    message: BestRate
    value: BestRate
    by_attacker: dict[str, AttackerRates]

    def names_messages(self, bound: float, chance: float) -> bool:
        """Whether the best attacker names the true message more often than the bound, clear of chance by two standard
        errors; or any attacker by three. An attacker that follows a path is right or wrong about all of a window, so
        rates vary."""
        best = self.message
        if best.rate > bound and best.rate - 2 * best.error > chance:
            return True
        every = [(each.message.mean(), _standard_error(each.message)) for each in self.by_attacker.values()]
        return any(rate > bound and rate - 3 * error > chance for rate, error in every)

    def mean_rates(self) -> dict[str, tuple[float, float]]:
        return {name: (float(each.message.mean()), float(each.value.mean())) for name, each in self.by_attacker.items()}


@dataclass(frozen=True, eq=False)
class ValueCheck:
    chance: float
    generator: str
    windows: int
    by_slot: BestRates
    shuffled: BestRates
    beginning: float
    """How often the best attacker by slot names the true value in the first `BEGINNING` events of a window."""
    causes: tuple[Cause, ...]
    """The reasons why the series is hard to hide."""
    candidates: Numbers
    """[steps, n]: the candidates of the first window, for a picture."""
    truth: Numbers
    """[steps]: its true values, in cells."""

    def exceeds(self, message_bound: float, value_bound: float) -> bool:
        """Whether the best attacker is right more often than these bounds, by slot or shuffled."""
        seen = (self.by_slot, self.shuffled)
        return any(each.names_messages(message_bound, self.chance) or each.value.rate > value_bound for each in seen)


def check_values(values: Numbers, domain: Integers | Reals, config: FoilConfig, plan: CheckPlan) -> ValueCheck:
    """Raises `ConfigError` for a series that is too short to be divided, and for settings that the member would
    refuse; `LocalError` for a value that cannot be published."""
    settings = config.attributes.get(domain.attribute, AttributeConfig())
    length = min(plan.length, max(len(values) // WINDOWS_MANY, LENGTH_GOOD), len(values) // WINDOWS_MIN)
    if length < LENGTH_MIN:
        raise ConfigError(f"the series has {len(values):,} values; a check needs {LENGTH_MIN * WINDOWS_MIN} or more")
    starts = _choose_starts(len(values), length, plan.windows)
    rng = np.random.default_rng(plan.seed)
    view = _CellView(domain)
    foiled = [_foil_window(values, start, length, domain, config, settings, plan.copies, rng) for start in starts]
    candidates = view.show(np.concatenate([each for each, _ in foiled]))
    position = np.concatenate([place for _, place in foiled])
    window = np.repeat(np.arange(len(starts)), plan.copies)
    forecast = _fit_expectation(values)
    model = _make_model(values, view, starts, plan.copies, length, forecast)
    unit = _written_unit(values, view)
    lineages = bool((position == position[:, :1]).all())
    order = np.argsort(rng.random(candidates.shape), axis=2)
    mixed = np.take_along_axis(candidates, order, axis=2)
    mixed_position = (order == position[:, :, None]).argmax(axis=2)
    by_slot = _attack(candidates, position, window, model, unit, plan.seed, slots=True, lineages=lineages)
    shuffled = _attack(mixed, mixed_position, window, model, unit, plan.seed, slots=False, lineages=False)
    begun = value_known(_all_most(candidates), candidates, position)[:, 1:BEGINNING]
    first, name = candidates[0], generator_name(settings, config)
    return ValueCheck(
        1 / candidates.shape[2],
        name,
        len(starts),
        by_slot,
        shuffled,
        float(begun.mean()),
        tuple(find_causes(CheckedSettings(values, view.width, name, settings, forecast, config.k_p))),
        first,
        np.take_along_axis(first, position[0][:, None], axis=1)[:, 0],
    )


class _CellView:
    """The broker's view of a number: its cell, shown as the middle of the cell."""

    def __init__(self, domain: Integers | Reals) -> None:
        self._domain = domain
        bits = levels_per_attribute(Schema((domain,)))[0]
        self._shift = domain.bits - bits
        self.width = _span(domain) / (1 << bits)

    def show(self, values: Numbers) -> Numbers:
        cells = np.array([self._domain.cell(_plain(each, self._domain)) >> self._shift for each in values.ravel()])
        return (self._domain.low + (cells.reshape(values.shape) + 0.5) * self.width).astype(np.float64)


def _plain(value: np.float64, domain: Integers | Reals) -> float:
    return int(value) if isinstance(domain, Integers) else float(value)


def _span(domain: Integers | Reals) -> float:
    return (
        float(1 << (domain.high - domain.low).bit_length())
        if isinstance(domain, Integers)
        else domain.high - domain.low
    )


def _choose_starts(steps: int, length: int, windows: int) -> list[int]:
    """Windows spread over the series; neighbours overlap by half at most."""
    many = min(windows, 2 * steps // length)
    return [int(start) for start in np.linspace(0, steps - length, many)]


def _foil_window(
    values: Numbers,
    start: int,
    length: int,
    domain: Integers | Reals,
    config: FoilConfig,
    settings: AttributeConfig,
    copies: int,
    rng: np.random.Generator,
) -> tuple[Numbers, NDArray[np.int64]]:
    base = settings.phase if settings.phase >= 0 else len(settings.history)
    own = msgspec.structs.replace(settings, phase=base + start)
    attributes = {**config.attributes, domain.attribute: own}
    generator = make_generator(domain, msgspec.structs.replace(config, attributes=attributes))
    if generator is None:
        raise ConfigError(f"{domain.attribute} has no fakes: k_p is 0, or it depends on another attribute")
    return foil_series(generator, np.tile(values[start : start + length], (copies, 1)), rng)


def _fit_expectation(values: Numbers) -> PublicForecast | None:
    try:
        return fit_forecast(values)
    except LocalError:
        return None


def _make_model(
    values: Numbers, view: _CellView, starts: Sequence[int], copies: int, length: int, forecast: PublicForecast | None
) -> StreamModel:
    seen = np.diff(view.show(values))
    law = fit_student_t(seen, relative=False) if np.ptp(seen) > 0 else None
    model = StreamModel(truth=None if law is None else MoveLaw(law.scale, law.mean, law.freedom), signs=_signs(seen))
    if (unit := _written_unit(values, view)) != view.width:
        model = replace(model, endings=count_endings(values / unit))
    if forecast is None:
        return model
    errors = forecast.errors
    new = fit_student_t(errors, relative=False) if np.ptp(errors) > 0 else None
    expected = _expect(forecast, values, np.add.outer(np.array(starts), np.arange(length)))
    keep = float(forecast.coefficients[1 : 1 + forecast.lags].sum()) if forecast.returns else 1.0
    return replace(
        model,
        forecast=np.repeat(expected, copies, axis=0),
        forecast_keep=keep,
        forecast_law=None if new is None else MoveLaw(new.scale, 0.0, new.freedom),
    )


def _expect(forecast: PublicForecast, values: Numbers, steps: NDArray[np.int64]) -> Numbers:
    """[windows, steps]: the level at each step; for a forecast of moves, the way on from the first value, which is
    public."""
    if forecast.returns:
        return forecast.expect_level(steps)
    moves = np.stack([forecast.expect_moves(own) for own in steps])
    moves[:, 0] = values[steps[:, 0]]
    return np.asarray(np.cumsum(moves, axis=1), np.float64)


def _written_unit(values: Numbers, view: _CellView) -> float:
    """The last decimal that values are written with, if cells show it; otherwise the width of a cell."""
    decimals = count_decimals(values)
    if decimals is None or view.width * 10**decimals > 1:
        return view.width
    return float(10.0**-decimals)


def _signs(moves: Numbers) -> SignLaw | None:
    try:
        fitted = SignPersistence.fit(moves)
    except LocalError:
        return None
    return SignLaw(fitted.constant, fitted.slope)


def _attack(
    candidates: Numbers,
    position: NDArray[np.int64],
    window: NDArray[np.int64],
    model: StreamModel,
    unit: float,
    seed: int,
    *,
    slots: bool,
    lineages: bool,
) -> BestRates:
    found = {}
    for attacker in attackers_on(StreamObservations):
        if attacker.name in _OTHERS or (not slots and attacker.name in _BY_SLOT) or not applies(attacker, model):
            continue
        seen = np.rint(candidates / unit) if attacker.name == "endings" else candidates
        posterior = score_candidates(attacker.name, seen, model)
        found[attacker.name] = _rate(posterior, candidates, position, window)
    if lineages:
        found["trained"] = _train_and_rate(candidates, position, window, unit)
    message = _find_best({name: each.message for name, each in found.items()}, seed)
    value = _find_best({name: each.value for name, each in found.items()}, seed)
    return BestRates(message, value, found)


def _find_best(rates: dict[str, Numbers], seed: int) -> BestRate:
    best = find_strongest(rates, _TOGETHER, seed)
    return BestRate(best.corrected, _standard_error(rates[best.name]), best.name)


def _standard_error(rates: Numbers) -> float:
    return float(rates.std() / np.sqrt(len(rates)))


def _rate(
    posterior: Numbers, candidates: Numbers, position: NDArray[np.int64], window: NDArray[np.int64]
) -> AttackerRates:
    chosen = likeliest_candidates(posterior)
    message = indistinguishability(chosen, position)[:, 1:].mean(axis=1)
    value = value_known(chosen, candidates, position)[:, 1:].mean(axis=1)
    count = np.bincount(window)
    return AttackerRates(np.bincount(window, message) / count, np.bincount(window, value) / count)


def _train_and_rate(
    candidates: Numbers, position: NDArray[np.int64], window: NDArray[np.int64], unit: float
) -> AttackerRates:
    """Windows take turns: each is judged by an attacker that was trained on the other windows of three parts."""
    posterior, seen = np.empty(candidates.shape), candidates / unit
    for fold in range(_FOLDS):
        own = window // _TOGETHER % _FOLDS == fold
        fitted = fit_logit(seen[~own], position[~own, -1])
        posterior[own] = score_candidates("trained", seen[own], StreamModel(fitted=fitted))
    return _rate(posterior, candidates, position, window)


def _all_most(candidates: Numbers) -> NDArray[np.bool_]:
    return likeliest_candidates(score_candidates("most", candidates, StreamModel()))


WINDOWS_MIN: Final = 4
WINDOWS_MANY: Final = 40
"""Number of windows that a series is divided into before windows become longer than `LENGTH_GOOD`. An attacker that
follows a whole path is right or wrong about a window as a whole, so few windows measure little."""
LENGTH_MIN: Final = 12
LENGTH_GOOD: Final = 100
"""In shorter windows the first events weigh too much, whose fakes have not spread yet."""
BEGINNING: Final = 20
_FOLDS: Final = 3
_TOGETHER: Final = 2
"""Windows of one half: neighbours overlap."""
_BY_SLOT: Final = frozenset({"turns", "endings", "trained", "errors", "kalman-bank", "restless", "likelihood-ratio"})
"""Attackers that follow slots."""
_OTHERS: Final = frozenset({"trained", "intersection", "newcomer", "told", "counting", "repeats", "counts", "odds"})
"""Attackers on categories or on branchings; the trained one needs training first."""
