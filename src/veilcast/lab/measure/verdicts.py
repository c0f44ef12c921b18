"""Verdicts: a number that an experiment states beforehand, beside a curve of ours.

There are three kinds of stated numbers, and they are never mixed:

- *published*: it is printed in a paper, at a place that the experiment names; or the paper says it in words, which the
  experiment quotes;
- *earlier*: it came out of an earlier run or of a prototype;
- *check*: it is our own: a formula, a control, or an aim.

How a verdict is made, from our value and the interval of its mean:

1. A value *fits* if the interval holds it, and is no wider than the margin `within` on either side. A published value
   is known to the last digit that the paper prints, and no better (`rounding`).
2. A value is *near* if the interval does not hold it, but ours lies within the margin.
3. A value fits *partly* if the interval is wider than the margin, and reaches into the margin around the value: little
   was asked of it. All others are *not reproduced*.
4. A bound ("at most", "at least") has no margin. It fits if the whole interval keeps it, and partly if some of it does.
5. A number that is "not told from" a value fits if the interval holds the value and is narrow, and partly if it is
   wide.

For the place of a curve's minimum, the interval is the range over which the curve is not told from its minimum. An
experiment also states the verdict that it expects; any other verdict is news, good or bad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.measure.stated_numbers import BOUNDS, StatedNumber, VerdictWord
from veilcast.lab.tables import VerdictRow


class CurvePoint(NamedTuple):
    """One point of a curve, with the interval of its mean."""

    x: float
    value: float
    low: float
    high: float


class NoPointError(LookupError):
    """A published number is about a point that the curve does not have."""


def judge_number(
    experiment: str, stated: StatedNumber, curves: Mapping[str, Sequence[CurvePoint]], engine: str = "kernel"
) -> VerdictRow:
    """Hold one stated number of an experiment against the curves of its figure, by their labels. Raises `NoPointError`
    if the curve lacks the point."""
    found, low, high = _statistic(stated, curves)
    bound = "" if stated.compare == "equal" else f", {stated.compare}"
    expected, why = stated.expected_of(engine)
    return VerdictRow(
        experiment=experiment,
        engine=engine,
        kind=stated.kind,
        what=stated.what,
        origin=stated.origin,
        figure=stated.figure,
        curve=stated.curve,
        x=stated.x,
        statistic=f"{stated.statistic}{bound}",
        stated=stated.value,
        reproduced=found,
        low=low,
        high=high,
        within=stated.within,
        difference=found - stated.value,
        verdict=judge_value(stated, (found, low, high)),
        expected=expected,
        why=why,
    )


Estimate: TypeAlias = tuple[float, float, float]


def judge_value(stated: StatedNumber, ours: Estimate) -> VerdictWord:
    """The verdict on our value and the interval of its mean."""
    found, low, high = ours
    exact = stated.precision + _ROUNDING
    margin = stated.within + exact
    least, most = stated.value - margin, stated.value + margin
    if stated.compare in BOUNDS:
        bound = stated.value + exact if stated.compare == "at most" else stated.value - exact
        kept = [end <= bound if stated.compare == "at most" else end >= bound for end in (low, high)]
        return "fits" if all(kept) else "partly" if any(kept) else "not reproduced"
    holds = low - exact <= stated.value <= high + exact
    # The place of the minimum on a plateau is random: only a minimum that stands out has a place.
    narrow = least <= low and high <= most if stated.statistic == "argmin" else high - low <= 2 * margin
    if holds:
        return "fits" if narrow else "partly"
    if stated.compare == "not told from":
        return "not reproduced"
    if narrow:
        return "near" if least <= found <= most else "not reproduced"
    return "partly" if low <= most and high >= least else "not reproduced"


def _statistic(stated: StatedNumber, curves: Mapping[str, Sequence[CurvePoint]]) -> Estimate:
    curve = curves[stated.curve]
    if not curve:
        raise NoPointError(f"the curve {stated.curve!r} has no points")
    match stated.statistic:
        case "value":
            return _at(curve, stated.x)[1:]
        case "change":
            return _difference(_at(curve, stated.x), _at(curve, stated.since))
        case "ratio":
            return _ratio(_at(curve, stated.x), _at(curve, stated.since))
        case "gap":
            return _difference(_at(curve, stated.x), _at(curves[stated.beside], stated.x))
        case "slope":
            return _slope(curve)
        case "argmin":
            return _argmin(curve)
        case "settles":
            return _settles(curve, curves[stated.beside], stated.margin)
        case "last":
            return curve[-1][1:]
        case unknown:
            raise ConfigError(f"stated {stated.what!r}: no statistic {unknown!r}")


def _difference(one: CurvePoint, other: CurvePoint) -> Estimate:
    half = ((one.high - one.low) ** 2 + (other.high - other.low) ** 2) ** 0.5 / 2
    difference = one.value - other.value
    return difference, difference - half, difference + half


def _ratio(one: CurvePoint, other: CurvePoint) -> Estimate:
    """How many times as large the one is, for values that are not negative. The interval takes the two as independent,
    and small beside their values."""
    if other.value <= 0:
        return math.inf, 0.0, math.inf
    ratio, halves = one.value / other.value, [(point.high - point.low) / 2 for point in (one, other)]
    half = math.hypot(halves[0], ratio * halves[1]) / other.value if all(map(math.isfinite, halves)) else math.inf
    return ratio, ratio - half, ratio + half


def _at(curve: Sequence[CurvePoint], x: float | None) -> CurvePoint:
    for point in curve:
        if x is not None and abs(point.x - x) <= _ROUNDING * max(1.0, abs(x)):
            return point
    raise NoPointError(f"the curve has no point at {x}")


def _slope(curve: Sequence[CurvePoint]) -> Estimate:
    """The slope of the least-squares line. Its interval follows from those of the points as if they were independent;
    cells that share their seeds move together, and the interval is then wider than needed."""
    x = np.array([point.x for point in curve])
    away = x - x.mean()
    weights = away / (away @ away)
    slope = float(weights @ np.array([point.value for point in curve]))
    halves = np.array([(point.high - point.low) / 2 for point in curve])
    # A point without an interval leaves the line without one, whatever its weight.
    half = float(np.sqrt((weights * halves) @ (weights * halves))) if np.isfinite(halves).all() else math.inf
    return slope, slope - half, slope + half


def _argmin(curve: Sequence[CurvePoint]) -> Estimate:
    least = min(curve, key=lambda point: point.value)
    as_low = [point.x for point in curve if point.low <= least.high]
    return least.x, min(as_low), max(as_low)


def _settles(curve: Sequence[CurvePoint], beside: Sequence[CurvePoint], margin: float) -> Estimate:
    """The first x from which all points stay within the margin of the other curve, with the earliest and the latest x
    if every point lay at the near or the far end of its interval. A curve that never settles does so at infinity."""
    away = [(point.x, abs(point.value - _at(beside, point.x).value), (point.high - point.low) / 2) for point in curve]

    def since(shift: float) -> float:
        start = float("inf")
        for x, distance, half in reversed(away):
            if distance + (shift * half if shift else 0) > margin + _ROUNDING:
                break
            start = x
        return start

    return since(0), since(-1), since(1)


_ROUNDING: Final = 1e-9
