"""`lab.attack` and `lab.measure` on tables: the guesses and the measures of a sweep, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from support.stored_results import read_table
from veilcast import lab
from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import SUBSCRIBER, Attacker
from veilcast.lab.tables import MeasureRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPERIMENT = """
title = "Kept for frames"
kind = "{kind}"
claim = "none"
reading = "none"
minutes = 1
seeds = 2
engines = ["{engine}"]

[base]
{base}
"""
MESH = """
nodes = 60
ratio = 0.2
insiders = 0.15
steps = [1, 3]
attacks = ["leaf", "closure", "first-spy", "group-testing"]
"""
STREAMS = "foil = 'noise'\nfakes = 3\nstreams = 6\nlength = 20\nguessers = ['uniform', 'medoid', 'turns']"


def sweep(folder: Path, kind: str, base: str, engine: str = "kernel") -> Path:
    (folder / "kept.toml").write_text(EXPERIMENT.format(kind=kind, base=base, engine=engine))
    lab.run(None, folder / "kept.toml", folder / "out", seeds=2, keep=["all"])
    return folder / "out"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(tmp_path_factory.mktemp("mesh"), "mesh.epochs", MESH)


def rows(table: Any) -> list[tuple[Any, ...]]:
    found = table if isinstance(table, pa.Table) else table.toArrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_the_stored_runs_of_an_experiment_give_its_guesses_and_measures(mesh: Path) -> None:
    runs = lab.stored_runs(None, mesh, "kept")
    guesses = lab.attack(runs)
    assert runs.guesses is not None
    assert rows(guesses) == rows(runs.guesses)
    assert "truth" not in runs.observations
    found = {row[1:6]: row[6] for row in rows(lab.measure(guesses, runs))}
    swept = {row[1:6]: row[6] for row in rows(read_table(mesh, MeasureRow, "kept")) if row[3]}
    assert found == swept
    assert len(found) > 50


def test_plain_tables_give_the_same_guesses_if_epochs_are_named(mesh: Path) -> None:
    runs = lab.stored_runs(None, mesh, "kept")
    assert runs.guesses is not None
    kept = [row for row in rows(runs.guesses) if row[1] in ("leaf", "group-testing", "first-spy")]
    guesses = lab.attack(runs.observations, ["leaf", "group-testing", "first-spy"], epochs=[1, 3])
    assert rows(guesses) == kept
    assert runs.truth is not None
    plain = {row[1:]: row[6] for row in rows(lab.measure(guesses, runs.truth, experiment="kept"))}
    stored = {row[1:]: row[6] for row in rows(lab.measure(guesses, runs))}
    assert plain == stored


def test_scores_are_means_over_seeds(mesh: Path) -> None:
    runs = lab.stored_runs(None, mesh, "kept")
    scores = lab.summarise(lab.measure(lab.attack(runs, ["leaf"]), runs))
    stored = lab.results(mesh)["kept"].scores
    keys = ("attack", "metric", "step", "value", "low", "high", "seeds")
    mine = {tuple(row[key] for key in keys) for row in scores.to_pylist()}
    assert mine
    assert mine <= {tuple(row[key] for key in keys) for row in stored.to_pylist()}


def test_results_are_read_as_the_run_returned_them(mesh: Path) -> None:
    again = lab.run(None, mesh.parent / "kept.toml", mesh, seeds=2, keep=["all"])
    (stored,) = lab.results(mesh).values()
    assert stored.scores.equals(again.scores)
    assert stored.verdicts.equals(again.verdicts)
    with pytest.raises(StorageError, match="holds no results"):
        lab.results(mesh.parent / "nowhere")


def test_guesses_about_streams_are_measured_without_their_values(tmp_path: Path) -> None:
    out = sweep(tmp_path, "foil.guesses", STREAMS)
    runs = lab.stored_runs(None, out, "kept")
    assert runs.truth is not None
    guesses = lab.attack(runs.observations, ["uniform", "medoid", "turns"])
    found = {row[2:5]: row[6] for row in rows(lab.measure(guesses, runs.truth))}
    swept = lab.results(out)["kept"]
    stored = {row[2:5]: row[6] for row in rows(lab.measure(lab.attack(runs), runs))}
    measured = {row[2:5]: row[6] for row in rows(read_table(out, MeasureRow, "kept"))}
    assert swept.runs == 0
    for seed in (0, 1):
        for attack in ("uniform", "medoid", "turns"):
            key = (seed, attack, "identified")
            assert found[key] == pytest.approx(measured[key], rel=1e-12)
            assert stored[key] == measured[key]


OTHERS = {
    "relay": ("relay.attacks", "nodes = 40\ntopics = 5\nsteps = [1, 2]\nrelay = 'paper'", ["dictionary", "order"]),
    "tree": (
        "tree.attacks",
        "tree = 'paper'\nnodes = 40\ninsiders = 0.2\npublications = 5\nsteps = [1, 8]",
        ["count", "depth"],
    ),
    "topics": (
        "mesh.topics",
        "nodes = 60\ndegree = 6\ntopics = 4\nratio = 0.5\ninsiders = 0.2\nsteps = [1, 3]",
        ["token-frequency-once", "relinking"],
    ),
    "clocks": ("mesh.clocks", "nodes = 5\ndegree = 2\nclocks = 'grid'\nsteps = [5, 10]", None),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_tables_of_every_adversary_can_be_attacked(kind: str, tmp_path: Path) -> None:
    name, base, names = OTHERS[kind]
    runs = lab.stored_runs(None, sweep(tmp_path, name, base), "kept")
    assert runs.guesses is not None
    assert rows(lab.attack(runs)) == rows(runs.guesses)
    # Links of tokens are guessed after numbers between those that are asked for, too.
    epochs = [1, 3] if kind == "topics" else sorted({row[2] for row in rows(runs.guesses)})
    names = names or sorted({row[1] for row in rows(runs.guesses)})
    wanted = [row for row in rows(runs.guesses) if row[1] in names]
    assert rows(lab.attack(runs.observations, names, epochs=epochs)) == wanted
    assert wanted


def test_an_attacker_of_ones_own_is_a_value_or_a_file_and_has_controls(mesh: Path, tmp_path: Path) -> None:
    def score_degrees(seen: EpochObservations) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.diff(seen.graph.offsets).astype(np.float64)

    mine = Attacker("degrees", SUBSCRIBER, EpochObservations, score_degrees)
    runs = lab.stored_runs(None, mesh, "kept")
    guesses = lab.attack(runs, [mine, "leaf"])
    assert {"degrees", "leaf"} <= {row[1] for row in rows(guesses)}
    found = lab.controls(mine)
    assert found.is_fair
    assert not found.succeeds
    with pytest.raises(ConfigError, match="no attack"):
        lab.attack(runs.observations, ["degrees"], epochs=[1])
    with pytest.raises(ConfigError, match="an attacker of the package"):
        lab.attack(runs, [Attacker("leaf", SUBSCRIBER, EpochObservations, score_degrees)])
    with pytest.raises(ConfigError, match="controls are for one attacker"):
        lab.controls("leaf")
    broken = Attacker("broken", SUBSCRIBER, EpochObservations, lambda seen: np.zeros(2))
    with pytest.raises(LocalError, match="attacker broken"):
        lab.attack(runs.observations, [broken], epochs=[1])


CELLS = pa.table({"run": ["r"], "epoch": [0], "t_us": [1], "src": ["a"], "dst": ["b"], "size": [9]})


@pytest.mark.parametrize(
    ("observed", "names", "epochs", "told"),
    [
        (CELLS.drop_columns(["t_us"]), [], (), "cells has no column t_us"),
        (CELLS.set_column(5, "size", pa.array(["x"])), [], (), "cells is no such table"),
        ({"cell": CELLS}, [], (), "there is no table cell; .* did you mean 'cells'"),
        ({"cells": 3}, [], (), "cells is a int"),
        ({}, [], (), "no adversary sees no table alone"),
        ({"presence": CELLS.select(["run", "epoch"]).append_column("node", [["a"]])}, [], (), "an attack needs"),
        (CELLS, ["laef"], (), "no attack on these tables is called 'laef'; .*did you mean 'leaf'"),
        (CELLS, ["first-spy"], (), "first-spy is an attack of a coalition of members, which needs insiders"),
        (CELLS, ["smoother"], (), "smoother is an attack of a broker that sees foiled streams, which needs streams"),
        (
            CELLS,
            ["leaf"],
            (2,),
            "and no numbers of epochs; or of .*, which needs cells, topology, and numbers of epochs",
        ),
        (CELLS, ["leaf"], (0,), "numbers of epochs are 1 or more"),
        (CELLS, ["cadence-linear"], (), "cadence-linear needs"),
    ],
)
def test_what_cannot_be_attacked_is_told_in_one_line(observed: Any, names: Any, epochs: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        lab.attack(observed, names, epochs=epochs)
    assert "\n" not in str(error.value)


def test_guesses_about_a_run_that_the_truth_does_not_know_are_not_measured(mesh: Path) -> None:
    runs = lab.stored_runs(None, mesh, "kept")
    assert isinstance(runs.truth, pa.Table)
    other = runs.truth.set_column(0, "run", pa.array(["other"] * len(runs.truth)))
    with pytest.raises(ConfigError, match="the truth has no row of run 'all seed=0'"):
        lab.measure(lab.attack(runs, ["leaf"]), other)


def test_stored_runs_that_are_not_there_are_told_in_one_line(mesh: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no cell 'nope'; it has 'all'"):
        lab.stored_runs(None, mesh, "kept", "nope")
    with pytest.raises(ConfigError, match="its own steps"):
        lab.attack(lab.stored_runs(None, mesh, "kept"), epochs=[1])
    lab.run(None, mesh.parent / "kept.toml", tmp_path, seeds=1)
    with pytest.raises(StorageError, match="has no tables of kept"):
        lab.stored_runs(None, tmp_path, "kept")
    lab.run(None, mesh.parent / "kept.toml", tmp_path / "more", seeds=1, keep=["cells"])
    runs = lab.stored_runs(None, tmp_path / "more", "kept")
    with pytest.raises(ConfigError, match="the truth of kept was not kept"):
        lab.measure(runs.observations["cells"], runs)
    other = lab.stored_runs(None, mesh, "kept")
    assert isinstance(other.guesses, pa.Table)
    renamed = other.guesses.set_column(0, "run", pa.array(["all seed=7"] * len(other.guesses)))
    with pytest.raises(ConfigError, match="the truth has no row of run 'all seed=7'"):
        lab.measure(renamed, other)


@pytest.mark.all_only
def test_frames_give_the_guesses_and_measures_of_arrow_tables(spark: SparkSession, mesh: Path) -> None:
    here, there = lab.stored_runs(None, mesh, "kept"), lab.stored_runs(spark, mesh, "kept")
    guesses = lab.attack(there)
    assert rows(guesses) == rows(lab.attack(here))
    assert rows(lab.measure(guesses, there)) == rows(lab.measure(lab.attack(here), here))
    mixed = {"cells": there.observations["cells"], "facts": here.observations["facts"]}
    assert rows(lab.attack(mixed, ["cadence"])) == rows(
        lab.attack({name: here.observations[name] for name in mixed}, ["cadence"])
    )
