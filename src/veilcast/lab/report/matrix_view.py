"""The contents of a matrix, as plain values: a slice for every choice of its axes and steps.

A slice has a row for each defence: the success of each attacker, the strongest of them, and the costs of the defence.
Success is a share of the distance from chance to certainty, in a few levels. If the interval contains chance, the level
is 0.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from veilcast.lab.experiment.definition import AttackMatrix, Experiment, ExperimentCell
from veilcast.lab.experiment.verdicts import ScoreTable


@dataclass(frozen=True)
class MatrixEntry:
    """A mean with its interval."""

    value: float
    low: float
    high: float

    def over(self, base: MatrixEntry) -> MatrixEntry:
        return MatrixEntry(self.value / base.value, self.low / base.value, self.high / base.value)


@dataclass(frozen=True)
class DefenceRow:
    defence: str
    reached: tuple[MatrixEntry | None, ...]
    """One entry for each attack; None if the attack does not apply to this defence, or was not run."""
    costs: tuple[MatrixEntry | None, ...]


@dataclass(frozen=True)
class MatrixSlice:
    at: Mapping[str, Any]
    """A value of every axis, and of the step."""
    rows: tuple[DefenceRow, ...]


@dataclass(frozen=True)
class AxisChoice:
    """An axis with more than one value; `first` is shown first."""

    name: str
    values: tuple[Any, ...]
    first: Any


@dataclass(frozen=True)
class MatrixView:
    matrix: AttackMatrix
    step: str
    """The unit of steps."""
    choices: tuple[AxisChoice, ...]
    views: tuple[MatrixSlice, ...]

    def level(self, entry: MatrixEntry) -> int:
        """The distance from chance: 0 for none, at most the number of `LEVELS`."""
        chance = self.matrix.chance
        if math.isfinite(entry.low) and math.isfinite(entry.high) and entry.low <= chance <= entry.high:
            return 0
        return bisect_left(LEVELS, self._way(entry) - _ROUNDING)

    def strongest(self, row: DefenceRow) -> tuple[str, MatrixEntry] | None:
        """The attack with the largest success, if there is one."""
        there = [(name, entry) for name, entry in zip(self.matrix.attacks, row.reached, strict=True) if entry]
        return max(there, key=lambda pair: self._way(pair[1]), default=None)

    def edges(self) -> list[float]:
        """The upper end of each level, in the metric."""
        return [self.matrix.chance + edge * (self.matrix.certain - self.matrix.chance) for edge in (*LEVELS, 1.0)]

    def _way(self, entry: MatrixEntry) -> float:
        """The share of the distance from chance, 0, to certainty, 1."""
        return (entry.value - self.matrix.chance) / (self.matrix.certain - self.matrix.chance)


def make_matrix_view(experiment: Experiment, matrix: AttackMatrix, scores: ScoreTable) -> MatrixView:
    """Only values of axes that have scores are offered."""
    cells = list(experiment.make_cells())
    found = [
        (cell, step)
        for cell in cells
        for step in sorted(
            {step for attack in matrix.attacks for step in scores.steps(cell.name, attack, matrix.metric)}
        )
    ]
    offered: dict[str, list[Any]] = {
        axis: [value for value in values if any(cell.at[axis] == value for cell, _ in found)]
        for axis, values in experiment.axes.items()
    }
    offered[STEP_AXIS] = sorted({step for _, step in found})
    views = []
    for values in itertools.product(*offered.values()):
        at = dict(zip(offered, values, strict=True))
        views.append(MatrixSlice(at, tuple(_rows(cells, at, matrix, scores))))
    choices = [
        AxisChoice(name, tuple(values), wanted if (wanted := matrix.at.get(name)) in values else values[-1])
        for name, values in offered.items()
        if len(values) > 1
    ]
    counted = next((cell.params.step_unit() for cell in cells if cell.params.observed_steps()), STEP_AXIS)
    return MatrixView(matrix, counted, tuple(choices), tuple(views))


def _rows(
    cells: Sequence[ExperimentCell], at: Mapping[str, Any], matrix: AttackMatrix, scores: ScoreTable
) -> Iterator[DefenceRow]:
    for cell in cells:
        if all(at[axis] == value for axis, value in cell.at.items()):
            reached = tuple(_success(cell, attack, matrix, scores, at[STEP_AXIS]) for attack in matrix.attacks)
            costs = tuple(_last(scores, cell, metric, at[STEP_AXIS]) for metric in matrix.costs)
            yield DefenceRow(cell.series, reached, costs)


def _success(
    cell: ExperimentCell, attack: str, matrix: AttackMatrix, scores: ScoreTable, step: float
) -> MatrixEntry | None:
    reached = _entry(scores, cell, attack, matrix.metric, step)
    if reached is None or not matrix.over:
        return reached
    base = _entry(scores, cell, attack, matrix.over, step)
    return reached.over(base) if base is not None and base.value else None


def _last(scores: ScoreTable, cell: ExperimentCell, metric: str, step: float) -> MatrixEntry | None:
    """The cost at this step, or at the last step before it that has one."""
    before = [one for one in scores.steps(cell.name, "", metric) if one <= step]
    return _entry(scores, cell, "", metric, max(before)) if before else None


def _entry(scores: ScoreTable, cell: ExperimentCell, attack: str, metric: str, step: float) -> MatrixEntry | None:
    score = scores.steps(cell.name, attack, metric).get(step)
    return None if score is None else MatrixEntry(score.value, score.low, score.high)


STEP_AXIS: Final = "step"
_ROUNDING: Final = 1e-9
LEVELS: Final = (0.04, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Ends of the levels, as shares of the distance from chance to certainty. They are finer near chance: for an AUC they
are .52, .55, .6, .7, .8 and .9."""
