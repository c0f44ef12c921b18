"""From scores to curves and verdicts: the points of each curve of an experiment, and the judgement of the numbers that
it states.

A curve is one metric of one series, over an axis (a cell for each point) or over the steps inside one cell's runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from veilcast.lab.experiment.definition import Experiment, Figure, FigureCurve
from veilcast.lab.measure.summary import widening
from veilcast.lab.measure.verdicts import CurvePoint, NoPointError, judge_number
from veilcast.lab.tables import VerdictRow


class Score(NamedTuple):
    """A row of the table `scores`, with the columns that curves need."""

    cell: str
    attack: str
    metric: str
    step: float
    value: float
    low: float
    high: float
    seeds: int


class ScoreTable:
    """The scores of one experiment, indexed by cell, attack and metric."""

    def __init__(self, rows: Iterable[Mapping[str, object] | Score]) -> None:
        self._steps: dict[tuple[str, str, str], dict[float, Score]] = {}
        for row in rows:
            score = row if isinstance(row, Score) else Score(**{name: row[name] for name in Score._fields})  # type: ignore[arg-type]
            self._steps.setdefault((score.cell, score.attack, score.metric), {})[score.step] = score

    def steps(self, cell: str, attack: str, metric: str) -> dict[float, Score]:
        return self._steps.get((cell, attack, metric), {})


def curve_points(
    experiment: Experiment, figure: Figure, curve: FigureCurve, scores: ScoreTable, among: int = 1
) -> list[CurvePoint]:
    """Points in the order of x. A cell without such a score has no point. Intervals hold for `among` numbers
    together."""
    found = []
    at = {name: value for name, value in curve.at.items() if name != "step"}
    for cell in experiment.make_cells():
        if cell.series != curve.series or any(cell.at[name] != value for name, value in at.items()):
            continue
        steps = scores.steps(cell.name, curve.attack, curve.metric)
        if figure.x == "step":
            found += [_point(step, score, among) for step, score in steps.items()]
        elif steps:
            step = curve.at.get("step", max(steps))
            found += [_point(float(cell.at[figure.x]), steps[step], among)] if step in steps else []
    return sorted(found)


def judge_numbers(name: str, experiment: Experiment, scores: ScoreTable, engine: str = "kernel") -> list[VerdictRow]:
    """Judge every stated number of the experiment. If the machines ran only part of the cells, numbers about other
    cells are left out, and numbers about a whole curve, too."""
    judged = []
    for figure in experiment.figures:
        said = [number for number in experiment.stated if number.figure == figure.name]
        drawn = {
            among: {curve.label: curve_points(experiment, figure, curve, scores, among) for curve in figure.curves}
            for among in sorted({number.among for number in said})
        }
        for number in said:
            curves = drawn[number.among]
            whole = figure.x == "step" or len(curves[number.curve]) == len(experiment.axes[figure.x])
            if whole or number.x is not None:
                with suppress(NoPointError):
                    judged.append(judge_number(name, number, curves, engine))
    return judged


def _point(x: float, score: Score, among: int) -> CurvePoint:
    if among == 1:
        return CurvePoint(x, score.value, score.low, score.high)
    half = (score.high - score.value) * widening(score.seeds, among)
    return CurvePoint(x, score.value, score.value - half, score.value + half)
