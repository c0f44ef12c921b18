"""Why foiling does not hide a series: the causes that a check names, each with what to do about it.

Causes are facts about the series, its cells and the member's settings. They are told whether or not an attacker of the
check has used them: a broker may have more time than the check.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from veilcast.errors import LocalError
from veilcast.foil.config import AttributeConfig
from veilcast.foil.generators.forecast_moves import count_decimals
from veilcast.foil.generators.movers import LEAN_MAX, SignPersistence
from veilcast.foil.generators.public_forecast import PublicForecast
from veilcast.foil.random_source import FloatArray


class Cause(NamedTuple):
    name: str
    """One of `CAUSES`."""
    text: str


class CheckedSettings(NamedTuple):
    """A series and the settings under which it was checked."""

    values: FloatArray
    cell_width: float
    generator: str
    attribute: AttributeConfig
    forecast: PublicForecast | None
    """The public expectation of the series; None if it is too short to tell."""
    fakes: int


def find_causes(checked: CheckedSettings) -> list[Cause]:
    parts = (_expected_values(checked), _lean(checked), _cells(checked), _rounding(checked), _past(checked))
    return [cause for part in parts for cause in part]


def _expected_values(checked: CheckedSettings) -> Iterator[Cause]:
    """Season, level, drift, growth and rests that the generator does not follow."""
    advice = _GIVE_HISTORY if not checked.attribute.history else _CHOOSE
    if (
        checked.attribute.history
        and checked.generator == "sign-flip"
        and len(checked.attribute.history) < _HISTORY_GOOD
    ):
        advice = _GIVE_MORE
    moves = np.diff(checked.values)
    ups, downs = np.count_nonzero(moves > 0), np.count_nonzero(moves < 0)
    found, generator = checked.forecast, checked.generator
    if generator not in ("counter", "bucketing", "entropy") and ups + downs and not min(ups, downs):
        yield Cause("drift", f"the values only go {'up' if ups else 'down'}, and {generator} does not; {advice}")
    elif found is not None and found.period and generator not in ("forecast", "counter"):
        yield Cause("season", f"the values have a season of {found.period} steps, and {generator} has none; {advice}")
    elif found is not None and found.returns and generator in ("sign-flip", "trajectories", "moran", "noise"):
        if ups + downs > len(moves) * _RESTS:
            yield Cause("level", f"the values return to a level, and {generator} wanders off; {advice}")
    elif found is not None and not found.is_empty and not found.returns and generator in ("sign-flip", "noise"):
        yield Cause("drift", f"the values drift, and {generator} does not; {advice}")
    if ups + downs < len(moves) * _RESTS and generator != "jumps":
        yield Cause("rests", f"the values mostly rest, and {generator} makes few paths of few moves; {advice}")


def _lean(checked: CheckedSettings) -> Iterator[Cause]:
    """A lean that the generator had to bound, or that is declared beyond the bound."""
    if checked.generator != "sign-flip":
        return
    history = np.array(checked.attribute.history)
    try:
        fitted = SignPersistence.fit(np.diff(history)) if len(history) > 2 else SignPersistence(*checked.attribute.lean)
    except LocalError:
        return
    if abs(fitted.constant) > LEAN_MAX / 2:
        way = "continue in" if fitted.constant > 0 else "turn from"
        yield Cause(
            "lean", f"nearly all moves {way} the direction of the last one, so the path that does so is the true one"
        )


def _cells(checked: CheckedSettings) -> Iterator[Cause]:
    moves = np.abs(np.diff(checked.values))
    moves = moves[moves > 0]
    typical = float(np.median(moves)) if moves.size else 0.0
    if typical < checked.cell_width:
        yield Cause(
            "cells",
            f"the broker's cells ({checked.cell_width:.3g}) are wider than a typical move ({typical:.3g}), so fakes"
            " share the cell of the truth; declare more bits, or a narrower domain",
        )
    cells = len(np.unique(np.floor(checked.values / checked.cell_width)))
    if cells < _CELLS_EACH * (checked.fakes + 1):
        yield Cause("values", f"the series has values in {cells} cells only: too few to hide one among {checked.fakes}")


def _rounding(checked: CheckedSettings) -> Iterator[Cause]:
    """Round numbers that are more frequent than others, in cells that show them."""
    decimals = count_decimals(checked.values)
    if decimals is None:
        return
    units = np.rint(checked.values * 10**decimals).astype(np.int64)
    for part in _ROUND:
        share = float(np.mean(units % part == 0))
        chance = 1 / part + _MANY * np.sqrt(1 / part / len(units))
        width = part / 10**decimals
        if np.ptp(units) > _WIDE * part and share > chance and checked.cell_width < width:
            yield Cause(
                "rounding",
                f"{share:.0%} of the values are multiples of {width:g} (by chance {1 / part:.0%}), and fakes are not;"
                f" declare cells of {width:g} or wider",
            )
            return


def _past(checked: CheckedSettings) -> Iterator[Cause]:
    history = np.array(checked.attribute.history)
    if not len(history):
        if checked.generator in ("sign-flip", "trajectories", "moran"):
            yield Cause("history", f"there are no past values to fit the fakes to; {_GIVE_HISTORY}")
        return
    if len(history) < _HISTORY_GOOD:
        yield Cause(
            "history",
            f"{len(history):,} past values are few: the error of a fit to them tells fakes from the truth; give"
            f" {_HISTORY_GOOD:,} or more",
        )
    then, now = float(np.diff(history).std()), float(np.diff(checked.values).std())
    if now and not 1 / _UNLIKE < then / now < _UNLIKE:
        yield Cause("history", f"the past moved {then / now:.2g} times as far as the series: it is of other times")


CAUSES: Final = ("drift", "season", "level", "rests", "lean", "cells", "values", "rounding", "history")
_GIVE_HISTORY: Final = 'give past values: history = "past.csv" under [foil]'
_GIVE_MORE: Final = "the past values are too few to tell; give more"
_CHOOSE: Final = 'leave "generator" out, and the past values choose one that does'
_RESTS: Final = 2 / 3
_CELLS_EACH: Final = 4
_ROUND: Final = (5, 10, 25, 50, 100)
_MANY: Final = 6.0
"""Standard errors above the share of round numbers that chance makes."""
_WIDE: Final = 10
_HISTORY_GOOD: Final = 1000
_UNLIKE: Final = 1.5
