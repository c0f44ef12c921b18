"""The experiments that come with the package: whatever they draw or judge is something that their runs give."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from veilcast.lab.sweep import curves, experiment
from veilcast.lab.sweep.curves import Score, Scores
from veilcast.lab.sweep.engines import ENGINES
from veilcast.lab.sweep.experiment import Experiment

LARGE = ("mesh-million", "mesh-gnutella", "mesh-deezer", "mesh-tokens-deezer")
SMALL = [name for name in experiment.names() if name not in LARGE and "kernel" in experiment.load(name)[1].engines]
"""Those that need neither minutes nor a data folder nor the machines."""


@dataclass(frozen=True)
class Lacking:
    points: list[str]
    verdicts: list[str]


def lacking(tried: Experiment) -> Lacking:
    """Curves that have no point at some x, columns of matrices that nobody fills, and published numbers without a
    verdict, after a run of each cell."""
    rows = [
        Score(cell.name, found.attack, found.metric, found.step, found.value, found.value, found.value)
        for cell in tried.cells()
        for found in ENGINES["kernel"](cell.params, 0, None)
    ]
    scores = Scores(rows)
    short = [
        f"{figure.name}, {curve.label}"
        for figure in tried.figures
        for curve in figure.curves
        if len(curves.points(tried, figure, curve, scores)) < (1 if figure.x == "step" else len(tried.axes[figure.x]))
    ]
    short += [
        f"{matrix.name}, {attack or metric}"
        for matrix in tried.matrices
        for attack, metric in [
            *((attack, matrix.metric) for attack in matrix.attacks),
            *(("", c) for c in matrix.costs),
        ]
        if not any(scores.steps(cell.name, attack, metric) for cell in tried.cells())
    ]
    judged = {(verdict.figure, verdict.what) for verdict in curves.verdicts("tried", tried, scores)}
    return Lacking(short, [one.what for one in tried.published if (one.figure, one.what) not in judged])


@pytest.mark.parametrize("name", SMALL)
def test_every_curve_has_its_points_and_every_published_number_its_verdict(name: str) -> None:
    assert lacking(experiment.load(name)[1]) == Lacking([], [])


def test_a_metric_that_no_run_gives_is_noticed() -> None:
    text = msgspec.json.encode(experiment.load("mesh-fig12")[1]).replace(b'"metric":"overlay"', b'"metric":"overlays"')
    found = lacking(msgspec.json.decode(text, type=Experiment))
    assert found.points == ["overlay, PF"]
    assert len(found.verdicts) == 3
