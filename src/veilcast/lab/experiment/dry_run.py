"""A dry run of an experiment before its sweep: does each curve name a metric that runs return?

The metrics of a run depend on its parameters, and only the run knows them. So each cell is run once, at quick size and
with seed 0, until every curve and every matrix has its metrics. If a name remains unknown, the experiment is refused
with the known names. Without this check the sweep would run to its end and draw nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import Experiment, ExperimentCell
from veilcast.lab.experiment.file_problems import unknown_name
from veilcast.lab.experiment.params import RunFunction


class DrawnMetric(NamedTuple):
    """A metric that a figure or a matrix draws: of an attack (empty for the network itself), and of one series or of
    any."""

    place: str
    series: str | None
    attack: str
    metric: str


def check_drawn_metrics(name: str, experiment: Experiment, engine: str, runner: RunFunction, data: Path | None) -> None:
    """Raise `ConfigError` if a figure or a matrix draws a metric that no run returns.

    An experiment of more than `CELLS_MAX` cells passes if its first cells do not decide.
    """
    left = list_drawn_metrics(experiment)
    given: dict[str, set[tuple[str, str]]] = {each.name: set() for each in experiment.series}
    cells = _in_turn(experiment.make_cells(quick=True, engine=engine))
    for cell in cells[:CELLS_MAX]:
        if any(each.series in (None, cell.series) for each in left):
            given[cell.series] |= {(each.attack, each.metric) for each in runner(cell.params, 0, data)}
            left = [each for each in left if (each.attack, each.metric) not in _of(given, each.series)]
    if left and len(cells) <= CELLS_MAX:
        raise ConfigError(f"experiment {name}: {'; '.join(dict.fromkeys(_told(each, given) for each in left))}")


def list_drawn_metrics(experiment: Experiment) -> list[DrawnMetric]:
    found = [
        DrawnMetric(f"figures.{figure.name}, {curve.label}", curve.series, curve.attack, curve.metric)
        for figure in experiment.figures
        for curve in figure.curves
    ]
    for matrix in experiment.matrices:
        place = f"matrices.{matrix.name}"
        metrics = [matrix.metric, *filter(None, [matrix.over])]
        found += [DrawnMetric(place, None, attack, metric) for attack in matrix.attacks for metric in metrics]
        found += [DrawnMetric(place, None, "", metric) for metric in matrix.costs]
    return found


def _in_turn(cells: Iterable[ExperimentCell]) -> list[ExperimentCell]:
    """The first cell of each series, then the second of each, and so on."""
    by_series: dict[str, list[ExperimentCell]] = {}
    for cell in cells:
        by_series.setdefault(cell.series, []).append(cell)
    return [cell for turn in zip_longest(*by_series.values()) for cell in turn if cell is not None]


def _of(given: dict[str, set[tuple[str, str]]], series: str | None) -> set[tuple[str, str]]:
    return given.get(series, set()) if series is not None else set().union(*given.values())


def _told(each: DrawnMetric, given: dict[str, set[tuple[str, str]]]) -> str:
    pairs = _of(given, each.series)
    metrics = {metric for attack, metric in pairs if attack == each.attack}
    if not each.attack and not metrics:
        return f"{each.place}: {each.metric!r} is a metric of an attack; there are {', '.join(_attacks(pairs))}"
    if metrics:
        of = f"of attack {each.attack!r} " if each.attack else ""
        return f"{each.place}: {of}{unknown_name('metric', each.metric, metrics)}"
    return f"{each.place}: {unknown_name('attack', each.attack, _attacks(pairs))}"


def _attacks(pairs: set[tuple[str, str]]) -> list[str]:
    return sorted({attack for attack, _ in pairs} - {""})


CELLS_MAX: Final = 64
"""Largest number of cells that are run, once each, before a name is refused."""
