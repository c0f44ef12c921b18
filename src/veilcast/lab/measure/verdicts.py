"""Verdicts: a published number of a paper beside a curve of ours.

A number *fits* if ours lies within the stated margin of the target and is known as precisely as that. The target is the
published value, or the value that the reading gives when it is executed elsewhere, where that is known. It fits
*partly* if our interval reaches into the margin, and is *not reproduced* otherwise. A bound ("at most", "at least") has
a margin on one side only: it fits if the whole interval keeps it, and partly if some of it does. A number that is "not
told from" a target fits if the interval holds the target and is no wider than the margin on either side; it fits partly
if the interval is wider, because then little was asked of it.

The interval is that of the mean; for the place of a curve's minimum, the range over which the curve is not
distinguished from its minimum. An experiment also states the verdict it expects; any other verdict is news, good or
bad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.tables import VerdictRow

VerdictWord: TypeAlias = Literal["fits", "partly", "not reproduced"]


class CurvePoint(NamedTuple):
    """One point of a curve, with the interval of its mean."""

    x: float
    value: float
    low: float
    high: float


class NoPointError(LookupError):
    """A published number is about a point that the curve does not have."""


class PublishedNumber(Protocol):
    """A published number as an experiment states it; see `lab.experiment.definition`."""

    @property
    def what(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def figure(self) -> str: ...
    @property
    def curve(self) -> str: ...
    @property
    def within(self) -> float: ...
    @property
    def x(self) -> float | None: ...
    @property
    def since(self) -> float | None: ...
    @property
    def statistic(self) -> str: ...
    @property
    def compare(self) -> str: ...
    @property
    def beside(self) -> str: ...
    @property
    def margin(self) -> float: ...
    @property
    def target(self) -> float | None: ...
    @property
    def expect(self) -> VerdictWord: ...
    @property
    def why(self) -> str: ...


def judge_number(experiment: str, published: PublishedNumber, curves: Mapping[str, Sequence[CurvePoint]]) -> VerdictRow:
    """Compare one published number of an experiment with the curves of its figure, by their labels. Raises
    `NoPointError` if the curve lacks the point."""
    target = published.value if published.target is None else published.target
    found, low, high = _statistic(published, curves)
    bound = "" if published.compare == "equal" else f", {published.compare}"
    return VerdictRow(
        experiment=experiment,
        what=published.what,
        figure=published.figure,
        curve=published.curve,
        x=published.x,
        statistic=f"{published.statistic}{bound}",
        published=published.value,
        target=target,
        reproduced=found,
        low=low,
        high=high,
        within=published.within,
        difference=found - target,
        verdict=_word(published, target, (found, low, high)),
        expected=published.expect,
        why=published.why,
    )


Estimate: TypeAlias = tuple[float, float, float]


def _word(published: PublishedNumber, target: float, ours: Estimate) -> VerdictWord:
    found, low, high = ours
    margin = published.within + _ROUNDING
    least, most = target - margin, target + margin
    match published.compare:
        case "at most":
            sure, possible = high <= most, low <= most
        case "at least":
            sure, possible = low >= least, high >= least
        case "not told from":
            possible = low <= target + _ROUNDING and high >= target - _ROUNDING
            sure = possible and high - low <= 2 * margin
        case _:
            possible = low <= most and high >= least
            # A number with an interval wider than the margin may lie in it by luck. The place of the minimum on a
            # plateau is random: only a minimum that stands out has a place.
            known = least <= low and high <= most if published.statistic == "argmin" else high - low <= 2 * margin
            sure = known and least <= found <= most
    return "fits" if sure else "partly" if possible else "not reproduced"


def _statistic(published: PublishedNumber, curves: Mapping[str, Sequence[CurvePoint]]) -> Estimate:
    curve = curves[published.curve]
    if not curve:
        raise NoPointError(f"the curve {published.curve!r} has no points")
    match published.statistic:
        case "value":
            return _at(curve, published.x)[1:]
        case "change":
            return _difference(_at(curve, published.x), _at(curve, published.since))
        case "gap":
            return _difference(_at(curve, published.x), _at(curves[published.beside], published.x))
        case "slope":
            return _slope(curve)
        case "argmin":
            return _argmin(curve)
        case "settles":
            return _settles(curve, curves[published.beside], published.margin)
        case "last":
            return curve[-1][1:]
        case unknown:
            raise ConfigError(f"published {published.what!r}: no statistic {unknown!r}")


def _difference(one: CurvePoint, other: CurvePoint) -> Estimate:
    half = ((one.high - one.low) ** 2 + (other.high - other.low) ** 2) ** 0.5 / 2
    difference = one.value - other.value
    return difference, difference - half, difference + half


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
