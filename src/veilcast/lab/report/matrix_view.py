"""What a matrix of an experiment shows, as plain values: for every choice of its axes and steps, a view.

A view has a row for each defence: how far each attacker got, the strongest of them, and what the defence costs. How far
is a share of the way from chance to certainty, in a few levels; one whose interval holds chance has not left it.
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
    """By attack; None for one that is not meant for this defence, or was not tried."""
    costs: tuple[MatrixEntry | None, ...]


@dataclass(frozen=True)
class MatrixSlice:
    at: Mapping[str, Any]
    """A value of every axis, and of the step."""
    rows: tuple[DefenceRow, ...]


@dataclass(frozen=True)
class AxisChoice:
    """What there is more than one value of; the reader begins with `first`."""

    name: str
    values: tuple[Any, ...]
    first: Any


@dataclass(frozen=True)
class MatrixView:
    matrix: AttackMatrix
    step: str
    """What steps count."""
    choices: tuple[AxisChoice, ...]
    views: tuple[MatrixSlice, ...]

    def level(self, entry: MatrixEntry) -> int:
        """How far it is from chance: 0 for not at all, and at most the number of `LEVELS`."""
        chance = self.matrix.chance
        if math.isfinite(entry.low) and math.isfinite(entry.high) and entry.low <= chance <= entry.high:
            return 0
        return bisect_left(LEVELS, self._way(entry) - _ROUNDING)

    def strongest(self, row: DefenceRow) -> tuple[str, MatrixEntry] | None:
        """The attack that got furthest, if there is one."""
        there = [(name, entry) for name, entry in zip(self.matrix.attacks, row.reached, strict=True) if entry]
        return max(there, key=lambda pair: self._way(pair[1]), default=None)

    def edges(self) -> list[float]:
        """Up to where each level goes, in the metric."""
        return [self.matrix.chance + edge * (self.matrix.certain - self.matrix.chance) for edge in (*LEVELS, 1.0)]

    def _way(self, entry: MatrixEntry) -> float:
        """From chance, 0, to certainty, 1."""
        return (entry.value - self.matrix.chance) / (self.matrix.certain - self.matrix.chance)


def make_matrix_view(experiment: Experiment, matrix: AttackMatrix, scores: ScoreTable) -> MatrixView:
    """Of the axes only those values are offered that there are scores of."""
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
            reached = tuple(_reached(cell, attack, matrix, scores, at[STEP_AXIS]) for attack in matrix.attacks)
            costs = tuple(_last(scores, cell, metric, at[STEP_AXIS]) for metric in matrix.costs)
            yield DefenceRow(cell.series, reached, costs)


def _reached(
    cell: ExperimentCell, attack: str, matrix: AttackMatrix, scores: ScoreTable, step: float
) -> MatrixEntry | None:
    reached = _entry(scores, cell, attack, matrix.metric, step)
    if reached is None or not matrix.over:
        return reached
    base = _entry(scores, cell, attack, matrix.over, step)
    return reached.over(base) if base is not None and base.value else None


def _last(scores: ScoreTable, cell: ExperimentCell, metric: str, step: float) -> MatrixEntry | None:
    """A cost at this step, or at the last before it, where it is not counted at every one."""
    before = [one for one in scores.steps(cell.name, "", metric) if one <= step]
    return _entry(scores, cell, "", metric, max(before)) if before else None


def _entry(scores: ScoreTable, cell: ExperimentCell, attack: str, metric: str, step: float) -> MatrixEntry | None:
    score = scores.steps(cell.name, attack, metric).get(step)
    return None if score is None else MatrixEntry(score.value, score.low, score.high)


STEP_AXIS: Final = "step"
_ROUNDING: Final = 1e-9
LEVELS: Final = (0.04, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of the way from chance to certainty at which levels end. Finer where a defence is good: of an AUC, these are
.52, .55, .6, .7, .8 and .9."""
