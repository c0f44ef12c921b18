"""The experiments that come with the package: whatever they draw or judge is something that their runs give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from veilcast.lab.experiment import definition
from veilcast.lab.experiment import verdicts as curves
from veilcast.lab.experiment.broker_params import BrokersDelays, BrokersLoad, BrokersMessages
from veilcast.lab.experiment.definition import Experiment, ExperimentCell
from veilcast.lab.experiment.foil_params import StreamParams
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure, RunParams
from veilcast.lab.experiment.verdicts import Score, ScoreTable
from veilcast.lab.measure.stated_numbers import OwnCheck, StatedNumber
from veilcast.lab.measure.verdicts import judge_value
from veilcast.lab.runs.foil import true_streams
from veilcast.lab.runs.mesh import coalition_training
from veilcast.lab.runs.table import ENGINES

TRAINED = ["mesh-attacks", "mesh-hardened-aim", "mesh-kappa"]
"""Those whose attackers learn for each of many cells."""
LARGE = ("mesh-million", "mesh-gnutella", "mesh-deezer", "mesh-tokens-deezer", "relay-tags-deezer")
CROWDED = ["relay-attacks"]
"""Those with many users, who need not be as many here."""
WOODED = [name for name in definition.packaged_names() if name.startswith("tree-")]
"""Those with many nodes, and as many trees, of whom fewer do here."""
BROKERED = [name for name in definition.packaged_names() if name.startswith("brokers-")]
"""Those with long traces, some of them real, which are short and synthetic here."""
FOILED = [name for name in definition.packaged_names() if name.startswith("foil-")]
"""Those with many streams, some of them real, of whom few are drawn here."""
CLOCKED = ["mesh-clocks"]
"""Those that watch many links for hours; here there are few links."""
SMALL = [
    name
    for name in definition.packaged_names()
    if name not in (*LARGE, *TRAINED, *CROWDED, *WOODED, *BROKERED, *FOILED, *CLOCKED)
    and not name.startswith("mesh-attacks-")
    and "kernel" in definition.load_experiment(name)[1].engines
]
"""Those that need neither minutes nor a data folder nor the machines."""


@dataclass(frozen=True)
class Lacking:
    points: list[str]
    verdicts: list[str]


def each_cell(cell: ExperimentCell) -> list[Measure]:
    return ENGINES["kernel"](cell.params, 0, None)


@cache
def small_world_of(params: RunParams) -> list[Measure]:
    return ENGINES["kernel"](params, 0, None)


def one_for_each_series(cell: ExperimentCell) -> list[Measure]:
    """Cells that differ only in how large or how many something is give measures of the same names."""
    kappa = 0.78 if isinstance(cell.params, MeshEpochs) and cell.params.kappa else 0
    alike = msgspec.structs.replace(cell.params, nodes=100, degree=8, insiders=0.1, kappa=kappa)
    return small_world_of(alike)


def lacking(tried: Experiment, run: Callable[[ExperimentCell], list[Measure]] = each_cell) -> Lacking:
    """Curves that have no point at some x, columns of matrices that nobody fills, and published numbers without a
    verdict, after a run of each cell."""
    rows = [
        Score(cell.name, found.attack, found.metric, found.step, found.value, found.value, found.value, 2)
        for cell in tried.make_cells()
        for found in run(cell)
    ]
    scores = ScoreTable(rows)
    short = [
        f"{figure.name}, {curve.label}"
        for figure in tried.figures
        for curve in figure.curves
        if len(curves.curve_points(tried, figure, curve, scores))
        < (1 if figure.x == "step" else len(tried.axes[figure.x]))
    ]
    short += [
        f"{matrix.name}, {attack or metric}"
        for matrix in tried.matrices
        for attack, metric in [
            *((attack, matrix.metric) for attack in matrix.attacks),
            *(("", c) for c in matrix.costs),
        ]
        if not any(scores.steps(cell.name, attack, metric) for cell in tried.make_cells())
    ]
    judged = {(verdict.figure, verdict.what) for verdict in curves.judge_numbers("tried", tried, scores)}
    return Lacking(short, [one.what for one in tried.stated if (one.figure, one.what) not in judged])


LONGEST = ("mesh-fig08", "mesh-hardened", "mesh-hardened-insiders")
"""Other experiments have curves of the same kinds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy) if name in LONGEST else name for name in SMALL]
)
def test_every_curve_has_its_points_and_every_published_number_its_verdict(name: str) -> None:
    assert lacking(definition.load_experiment(name)[1]) == Lacking([], [])


@pytest.mark.parametrize("name", [pytest.param(TRAINED[0], marks=pytest.mark.heavy), *TRAINED[1:]])
def test_so_have_those_whose_attackers_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalition_training, "_NETWORKS", 2)
    assert lacking(definition.load_experiment(name)[1], one_for_each_series) == Lacking([], [])


@pytest.mark.parametrize("name", CROWDED)
def test_so_have_those_with_many_users(name: str) -> None:
    def fewer(cell: ExperimentCell) -> list[Measure]:
        return ENGINES["kernel"](msgspec.structs.replace(cell.params, nodes=60, topics=6), 0, None)

    assert lacking(definition.load_experiment(name)[1], fewer) == Lacking([], [])


def test_so_has_the_real_relay() -> None:
    tried = definition.load_experiment("relay-machines")[1]
    assert lacking(tried, lambda cell: ENGINES["machines"](shrink(cell.params, nodes=6), 0, None)) == Lacking([], [])


@pytest.mark.parametrize("name", CLOCKED)
def test_so_have_those_that_watch_clocks(name: str) -> None:
    def fewer(cell: ExperimentCell) -> list[Measure]:
        return ENGINES["kernel"](msgspec.structs.replace(cell.params, nodes=4, degree=2), 0, None)

    assert lacking(definition.load_experiment(name)[1], fewer) == Lacking([], [])


def machines_of(params: BrokersMessages | BrokersDelays) -> list[Measure]:
    """A run over one node, with its measures repeated for each of the steps."""
    engine = "machines" if isinstance(params, BrokersMessages) else "live"
    one = ENGINES[engine](shrink(params, counts=(1,), over="hops", replicas=3), 0, None)
    return [msgspec.structs.replace(measure, step=count) for count in params.counts for measure in one]


@cache
def loaded(params: RunParams) -> list[Measure]:
    """A run of one cell, for all: they differ in who lies."""
    return ENGINES["machines"](params, 0, None)


def shrink(params: RunParams, **smaller: Any) -> RunParams:
    """The parameters with those of these values that their kind has."""
    known = {name: value for name, value in smaller.items() if name in params.__struct_fields__}
    return msgspec.structs.replace(params, **known)


@pytest.mark.parametrize("name", BROKERED)
def test_so_have_those_with_brokers(name: str) -> None:
    tried = definition.load_experiment(name)[1]

    def shorter(cell: ExperimentCell) -> list[Measure]:
        if isinstance(cell.params, BrokersMessages | BrokersDelays):
            return machines_of(cell.params)
        if isinstance(cell.params, BrokersLoad):
            return loaded(shrink(cell.params, nodes=1, replicas=3, notes=1, lie="none", ahead=True))
        few = {"users": 3_000, "relations": 28_300, "interactions": 1_400, "overlays": 2, "trace": "synthetic"}
        return ENGINES[tried.engines[0]](shrink(cell.params, **few), 0, None)

    assert lacking(tried, shorter) == Lacking([], [])


@pytest.mark.parametrize("name", WOODED)
def test_so_have_those_with_trees(name: str) -> None:
    def fewer(cell: ExperimentCell) -> list[Measure]:
        few = {"readers": 5, "publications": 3}
        smaller = {name: min(getattr(cell.params, name, most), most) for name, most in few.items()}
        return ENGINES["kernel"](shrink(cell.params, nodes=60, **smaller), 0, None)

    assert lacking(definition.load_experiment(name)[1], fewer) == Lacking([], [])


@pytest.mark.parametrize("name", FOILED)
def test_so_have_those_that_foil(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that differ only in how much of something there is give measures of the same names."""
    rng = np.random.default_rng(1)
    days = tuple(50 + np.cumsum(0.05 * rng.standard_normal(45)) for _ in range(4))
    traded = tuple(1000.0 * (1 + day % 7) for day in days)
    monkeypatch.setattr(true_streams, "_read", lambda source: (days, traded, true_streams.CENT))
    true_streams._days.cache_clear()
    alike = {"ar1": "gbm", "msft": "goog", "daily": "goog"}

    @cache
    def short(params: RunParams) -> list[Measure]:
        return ENGINES["kernel"](params, 0, None)

    def fewer(cell: ExperimentCell) -> list[Measure]:
        given = cell.params
        small: dict[str, Any] = {"streams": 2, "copies": 1, "length": 20, "fakes": 2, "factor": 1.0}
        if isinstance(given, StreamParams):
            small |= {"truth": alike.get(given.truth, given.truth), "training": min(given.training, 1)}
        return short(shrink(given, **small))

    found = lacking(definition.load_experiment(name)[1], fewer)
    true_streams._days.cache_clear()
    assert found == Lacking([], [])


@pytest.mark.parametrize("name", ["mesh-attacks-gnutella", "mesh-attacks-deezer"])
def test_on_real_overlays_the_same_is_drawn_of_the_same_attackers(name: str) -> None:
    """Whose runs need a data folder."""
    tried, usual = definition.load_experiment(name)[1], definition.load_experiment("mesh-attacks")[1]
    assert set(tried.base["attacks"]) <= set(usual.base["attacks"])
    assert tried.series == usual.series
    metrics = {(curve.attack, curve.metric) for figure in usual.figures for curve in figure.curves}
    for figure in tried.figures:
        assert {(curve.attack, curve.metric) for curve in figure.curves} <= metrics


def missed(stated: StatedNumber) -> list[float]:
    """Values that cannot be meant by a stated number, and that a verdict would let pass."""
    wrong = [0.0, 2 * stated.value, -stated.value, math.nan, math.inf]
    return [value for value in wrong if judge_value(stated, (value, value, value)) in ("fits", "near", "partly")]


@pytest.mark.parametrize("name", definition.packaged_names())
def test_no_stated_number_lets_0_its_double_or_nonsense_pass(name: str) -> None:
    tried = definition.load_experiment(name)[1]
    values = [number for number in tried.stated if number.compare == "equal" and number.value]
    assert {number.what: found for number in values if (found := missed(number))} == {}


def test_a_margin_as_wide_as_its_value_is_noticed() -> None:
    """The planted fault: what a file said of foiling with ten false values."""
    assert missed(OwnCheck(what="", value=0.01, within=0.03, figure="", curve="", x=1)) == [0.0, 0.02, -0.01]
    assert missed(OwnCheck(what="", value=0.01, within=0.003, figure="", curve="", x=1)) == []


def test_a_metric_that_no_run_gives_is_noticed() -> None:
    text = msgspec.json.encode(definition.load_experiment("mesh-fig12")[1]).replace(
        b'"metric":"overlay"', b'"metric":"overlays"'
    )
    found = lacking(msgspec.json.decode(text, type=Experiment))
    assert found.points == ["overlay, PF"]
    assert len(found.verdicts) == 6
