"""The contents of a figure, as plain values: its lines with their intervals, and published and earlier values.

A stated value lies on its curve at its x. A value about a whole curve (from where it stays near another, where it is
smallest) is a place on the horizontal axis. Slopes, differences and bounds are neither, and appear in the table only,
as our own checks do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from veilcast.lab.experiment import verdicts
from veilcast.lab.experiment.definition import Experiment, Figure
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.measure.stated_numbers import StatedNumber
from veilcast.lab.measure.verdicts import CurvePoint

_NO_OTHERS: Final[Mapping[str, ScoreTable]] = {}


@dataclass(frozen=True)
class PlotLine:
    label: str
    style: Literal["line", "points", "reference"]
    points: tuple[CurvePoint, ...]
    twin: int | None = None
    """The number of the line with the same curve by another engine, whose colour it shares."""


@dataclass(frozen=True)
class StatedMark:
    """A published or an earlier value: at (x, y) of a line, or at x alone."""

    kind: str
    what: str
    line: int
    x: float
    y: float | None


@dataclass(frozen=True)
class FigureData:
    title: str
    x_label: str
    y_label: str
    lines: tuple[PlotLine, ...]
    marks: tuple[StatedMark, ...] = ()
    log_x: bool = False
    log_y: bool = False


def make_figure_data(
    experiment: Experiment, figure: Figure, scores: ScoreTable, others: Mapping[str, ScoreTable] = _NO_OTHERS
) -> FigureData:
    """A figure of these scores. `others` are scores by further engines, whose curves are drawn as points beside."""
    lines = [
        PlotLine(curve.label, curve.style, tuple(verdicts.curve_points(experiment, figure, curve, scores)))
        for curve in figure.curves
    ]
    for engine, table in others.items():
        for number, curve in enumerate(figure.curves):
            points = tuple(verdicts.curve_points(experiment, figure, curve, table))
            if points and curve.style != "reference":
                lines.append(PlotLine(f"{curve.label}, {engine}", "points", points, number))
    places = {line.label: number for number, line in enumerate(lines)}
    marks = [
        mark
        for number in (*experiment.published, *experiment.earlier)
        if number.figure == figure.name and (mark := _mark(number, lines, places[number.curve]))
    ]
    return FigureData(
        figure.title, figure.x_label, figure.y_label, tuple(lines), tuple(marks), figure.log_x, figure.log_y
    )


def has_interval(point: CurvePoint) -> bool:
    """Whether the point has an interval: one seed gives none."""
    return math.isfinite(point.low) and math.isfinite(point.high) and point.low < point.high


def _mark(number: StatedNumber, lines: Sequence[PlotLine], line: int) -> StatedMark | None:
    if number.compare != "equal":
        return None
    match number.statistic:
        case "value" if number.x is not None:
            return StatedMark(number.kind, number.what, line, number.x, number.value)
        case "last" if lines[line].points:
            return StatedMark(number.kind, number.what, line, lines[line].points[-1].x, number.value)
        case "argmin" | "settles":
            return StatedMark(number.kind, number.what, line, number.value, None)
        case _:
            return None
