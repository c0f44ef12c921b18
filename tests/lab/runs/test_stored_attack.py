"""Attacks on stored runs: the guesses and the measures of the sweep, from its kept tables alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from support.stored_results import read_table, tables_in
from veilcast.cli.main import main
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.attack.table_engine import ArrowEngine
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.kept_tables import KeptGroup, read_kept, read_lineage
from veilcast.lab.experiment.workplace import Workplace
from veilcast.lab.runs import stored_attack, stored_attack_task
from veilcast.lab.runs.stored_attack import attack_stored, read_guesses, read_measures
from veilcast.lab.runs.stored_attack_task import AttackTask, count_different, find_stored_attack
from veilcast.lab.runs.table import ENGINES, choose_kept_tables
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import MeasureRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPERIMENT = """
title = "Kept and attacked again"
kind = "mesh.epochs"
claim = "none"
reading = "none"
minutes = 1
seeds = 2
engines = ["kernel"]

[base]
nodes = 60
ratio = 0.2
insiders = 0.15
churn = 0.1
steps = [1, 3]
attacks = ["leaf", "closure", "disclosure", "group-testing", "linear", "predecessor", "first-spy"]

[[series]]
name = "plain"

[[series]]
name = "hardened"
params = { kappa = 0.6 }
"""


_RELAY = "nodes = 40\ntopics = 5\nsteps = [1, 2]\nrelay = 'hardened'\nbatch = 10.0"
_RELAY_MACHINES = "nodes = 6\ntopics = 2\nsteps = [2]\nrelay = 'paper'\nbatch = 4.0"
_WIRES = "nodes = 12\npublications = 4\nratio = 0.3\nwire = 'prompt'"
_TREES = "nodes = 40\ninsiders = 0.2\npublications = 5\nsteps = [1, 8]"
_GUESSES = "truth = 'gbm'\nfoil = 'noise'\nguessers = ['medoid', 'uniform', 'smoother', 'turns']"
_TOPICS = "nodes = 60\ndegree = 6\ntopics = 4\nratio = 0.5\ninsiders = 0.2\nchurn = 0.1\nkappa = 0.4\nsteps = [1, 3]"
_FOIL = "fakes = 3\nstreams = 4\nlength = 20"
OTHER = """
title = "Another kind"
claim = "none"
reading = "none"
minutes = 1
seeds = 1
kind = "{kind}"
engines = ["{engine}"]

[base]
{base}

[[series]]
name = "only"
"""
OTHERS = {
    "relay.attacks": OTHER.format(kind="relay.attacks", engine="kernel", base=_RELAY),
    "relay.attacks by machines": OTHER.format(kind="relay.attacks", engine="machines", base=_RELAY_MACHINES),
    "mesh.wires": OTHER.format(kind="mesh.wires", engine="machines", base=_WIRES),
    "foil.guesses": OTHER.format(kind="foil.guesses", engine="kernel", base=f"{_FOIL}\n{_GUESSES}"),
    "foil.categories": OTHER.format(kind="foil.categories", engine="kernel", base=f"{_FOIL}\nfoil = 'entropy'"),
    "foil.pairs": OTHER.format(kind="foil.pairs", engine="kernel", base=_FOIL),
    "foil.pedigrees": OTHER.format(kind="foil.pedigrees", engine="kernel", base=f"{_FOIL}\nfoil = 'moran'\npublic = 5"),
    "mesh.topics": OTHER.format(kind="mesh.topics", engine="kernel", base=_TOPICS),
    "mesh.pruning": OTHER.format(kind="mesh.pruning", engine="kernel", base="nodes = 60\npruner = 'publisher'"),
    "mesh.clocks": OTHER.format(
        kind="mesh.clocks", engine="kernel", base="nodes = 5\ndegree = 2\nclocks = 'grid'\nsteps = [5, 10]"
    ),
    "relay.timing": OTHER.format(
        kind="relay.timing", engine="machines", base="nodes = 6\nsteps = [3]\nrelay = 'answers'"
    ),
    "tree.attacks": OTHER.format(kind="tree.attacks", engine="kernel", base=f"tree = 'paper'\n{_TREES}"),
    "tree.definitions": OTHER.format(
        kind="tree.definitions", engine="kernel", base=f"tree = 'hardened'\ntopics = 3\nratio = 0.3\n{_TREES}"
    ),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sweep.SweepResult]:
    """A sweep with all its tables, in this process, with both seeds of a cell in one file."""
    root = tmp_path_factory.mktemp("kept")
    (root / "again.toml").write_text(EXPERIMENT)
    name, definition = load_experiment(str(root / "again.toml"))
    keep = choose_kept_tables(["all"], ["mesh.epochs"], "kernel")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("veilcast.lab.experiment.plan._KEPT_TASKS", 1)
        return root, sweep.run_sweep(
            None, name, definition, LocalDirectory(root), engine="kernel", runner=ENGINES["kernel"], seeds=2, keep=keep
        )


def values(measures: pa.Table, attacks: set[str]) -> dict[tuple[Any, ...], float]:
    keys = ("cell", "seed", "attack", "metric", "step")
    return {tuple(row[key] for key in keys): row["value"] for row in measures.to_pylist() if row["attack"] in attacks}


def test_a_stored_run_gives_the_guesses_and_measures_of_the_sweep_to_the_last_digit(
    swept: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    root, result = swept
    attacked = attack_stored(None, LocalDirectory(root), "again", out=LocalDirectory(tmp_path))
    kept = read_kept(LocalDirectory(root), result.manifest, "guesses")
    assert (attacked.guesses, attacked.compared, attacked.different) == (len(kept), len(kept), 0)
    assert len(kept) > 1_000
    attacks = {"leaf", "closure", "disclosure", "group-testing", "linear", "predecessor", "first-spy"}
    before = values(read_table(root, MeasureRow, "again"), attacks)
    found = values(read_measures(LocalDirectory(tmp_path), "again"), attacks)
    assert (found, attacked.measures) == (before, len(before))
    assert {key[2] for key in before} == attacks


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_of_runs_can_be_attacked_again_too(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilcast.lab.runs.mesh.wires_machines._TRAINED_ON", 1)
    (tmp_path / "other.toml").write_text(OTHERS[kind])
    name, definition = load_experiment(str(tmp_path / "other.toml"))
    engine = definition.engines[0]
    keep = choose_kept_tables(["all"], [definition.kind], engine)
    sweep.run_sweep(
        None, name, definition, LocalDirectory(tmp_path), engine=engine, runner=ENGINES[engine], seeds=1, keep=keep
    )
    attacked = attack_stored(None, LocalDirectory(tmp_path), name, out=LocalDirectory(tmp_path / "attacked"))
    assert (attacked.compared, attacked.different) == (attacked.guesses, 0)
    measures = read_measures(LocalDirectory(tmp_path / "attacked"), name)
    found = values(measures, set(measures["attack"].to_pylist()))
    before = values(read_table(tmp_path, MeasureRow, name), {key[2] for key in found})
    assert len(found) > 1
    assert {key: before[key] for key in found} == found


@pytest.mark.all_only
def test_spark_gives_the_same_guesses_and_scores_in_the_same_bytes(
    spark: SparkSession, swept: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    root, _ = swept
    here = attack_stored(None, LocalDirectory(root), "again", out=LocalDirectory(tmp_path / "here"))
    there = attack_stored(spark, LocalDirectory(root), "again", out=LocalDirectory(tmp_path / "there"))
    assert there.different == 0
    assert there.scores is not None
    assert there.scores.equals(here.scores)
    for read in (read_guesses, read_measures):
        assert read(LocalDirectory(tmp_path / "there"), "again").equals(
            read(LocalDirectory(tmp_path / "here"), "again")
        )
    assert tables_in(tmp_path / "there") == tables_in(tmp_path / "here")


@pytest.mark.all_only
def test_spark_brings_scores_and_a_row_for_each_task_however_many_seeds_there_are(
    spark: SparkSession, swept: tuple[Path, sweep.SweepResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[int] = []
    bring = Workplace._bring

    def count(place: Workplace, frame: DataFrame) -> pa.Table:
        rows = bring(place, frame)
        brought.append(len(rows))
        return rows

    monkeypatch.setattr(Workplace, "_bring", count)
    name, definition = load_experiment(str(swept[0] / "again.toml"))
    keep = choose_kept_tables(["all"], ["mesh.epochs"], "kernel")
    runner, scores = ENGINES["kernel"], set()
    for seeds in (2, 6):
        root = LocalDirectory(tmp_path / str(seeds))
        sweep.run_sweep(None, name, definition, root, engine="kernel", runner=runner, seeds=seeds, keep=keep)
        attacked = attack_stored(spark, root, name)
        assert attacked.scores is not None
        assert brought == [len(attacked.scores) + len(attacked.seconds)]
        assert attacked.measures == seeds * len(attacked.scores)
        scores.add(len(attacked.scores))
        brought.clear()
    assert len(scores) == 1


@pytest.mark.all_only
def test_an_attack_that_moves_to_spark_half_way_gives_the_scores_of_this_process(
    spark: SparkSession, swept: tuple[Path, sweep.SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = swept
    here = attack_stored(None, LocalDirectory(root), "again")
    moves = iter([True])

    def move(place: Workplace, left: int) -> None:
        if next(moves, False):
            place.session = spark

    monkeypatch.setattr(Workplace, "_move_if_it_pays", move)
    both = attack_stored(None, LocalDirectory(root), "again")
    assert both.scores is not None
    assert both.scores.equals(here.scores)
    assert (both.guesses, both.measures, len(both.seconds)) == (here.guesses, here.measures, 2)


@pytest.mark.all_only
def test_runs_too_large_for_a_task_give_the_same_guesses_by_the_aggregations_of_spark(
    spark: SparkSession, swept: tuple[Path, sweep.SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = swept
    small = attack_stored(None, LocalDirectory(root), "again")
    monkeypatch.setattr(stored_attack, "RUN_ROWS", 0)
    large = attack_stored(spark, LocalDirectory(root), "again")
    assert (large.compared, large.different) == (small.guesses, 0)
    assert large.scores is not None
    assert large.scores.equals(small.scores)
    with pytest.raises(ConfigError, match="too large for one process"):
        attack_stored(None, LocalDirectory(root), "again")


def test_a_task_that_takes_a_file_in_parts_guesses_the_same(
    swept: tuple[Path, sweep.SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = swept
    whole = attack_stored(None, LocalDirectory(root), "again")
    taken = []
    attack = stored_attack_task.AttackTask.attack

    def count(task: AttackTask, group: KeptGroup, observed: Mapping[str, Any]) -> Any:
        runs = ArrowEngine().query("SELECT DISTINCT run FROM {cells}", cells=observed["cells"])
        taken.append(len(runs))
        return attack(task, group, observed)

    monkeypatch.setattr(stored_attack_task.AttackTask, "attack", count)
    monkeypatch.setattr(stored_attack_task, "_ROWS_AT_ONCE", 1)
    parts = attack_stored(None, LocalDirectory(root), "again")
    assert taken == [1] * 4
    assert (parts.compared, parts.different) == (whole.guesses, 0)
    assert parts.scores is not None
    assert parts.scores.equals(whole.scores)


def test_a_named_attacker_alone_is_asked_even_if_the_sweep_did_not_ask_it(
    swept: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    root, _ = swept
    attacked = attack_stored(None, LocalDirectory(root), "again", ["centrality"], out=LocalDirectory(tmp_path))
    asked = set(read_guesses(LocalDirectory(tmp_path), "again")["attack"].to_pylist())
    assert asked >= {"centrality"}
    assert "leaf" not in asked
    assert set(read_measures(LocalDirectory(tmp_path), "again")["attack"].to_pylist()) == {"centrality"}
    assert attacked.different == 0


def test_a_changed_guess_is_counted(swept: tuple[Path, sweep.SweepResult]) -> None:
    root, result = swept
    kept = read_kept(LocalDirectory(root), result.manifest, "guesses")
    scores = kept["score"].to_numpy().copy()
    scores[7] += 1
    changed = kept.set_column(kept.column_names.index("score"), "score", pa.array(scores))
    assert count_different(kept, changed) == (len(kept), 1)


def test_written_guesses_say_where_they_come_from(swept: tuple[Path, sweep.SweepResult], tmp_path: Path) -> None:
    root, result = swept
    attacked = attack_stored(None, LocalDirectory(root), "again", ["leaf"], out=LocalDirectory(tmp_path))
    for file in attacked.files:
        lineage = read_lineage(LocalDirectory(tmp_path), file.path)
        assert lineage["stored"] == str(root.resolve())
        assert lineage["made_by"] == result.manifest.fingerprint
        assert lineage["seeds"] == [0, 1]
        assert "params" in lineage


def test_attackers_are_never_handed_the_truth(
    swept: tuple[Path, sweep.SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    from veilcast.lab.runs.mesh import attack_suite

    handed: set[str] = set()
    attack = attack_suite.attack_tables

    def watch(observed: Any, *rest: Any) -> Any:
        handed.update(observed)
        return attack(observed, *rest)

    monkeypatch.setattr(attack_suite, "attack_tables", watch)
    attack_stored(None, LocalDirectory(swept[0]), "again", ["leaf"])
    assert "cells" in handed
    assert not handed & {"truth", "guesses"}


def test_the_command_tells_that_kept_guesses_are_the_same_and_writes_its_own(
    swept: tuple[Path, sweep.SweepResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = swept
    out = tmp_path / "attacked"
    assert main(["lab", "attack", str(root), "--attacker", "leaf", "--out", str(out), "--json"]) == 0
    (told,) = msgspec.json.decode(capsys.readouterr().out)["experiments"]
    assert (told["experiment"], told["different"], told["tasks"]) == ("again", 0, 2)
    assert told["compared"] == told["guesses"] == len(read_guesses(LocalDirectory(out), "again")) > 0
    assert any(row["metric"] == "auc" for row in told["scores"])


def test_what_cannot_be_attacked_is_told_in_one_line(swept: tuple[Path, sweep.SweepResult], tmp_path: Path) -> None:
    root, _ = swept
    with pytest.raises(ConfigError, match=r"no attack .*nonsense"):
        attack_stored(None, LocalDirectory(root), "again", ["nonsense"])
    with pytest.raises(StorageError):
        attack_stored(None, LocalDirectory(tmp_path), "again")
    with pytest.raises(ConfigError, match=r"tree\.costs by kernel cannot be attacked again"):
        find_stored_attack("tree.costs", "kernel")


ATTACKER = """
import numpy as np

from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import SUBSCRIBER, Attacker


def score_receivers(seen):
    return seen.average(seen.each_flow(lambda _, flow: np.bincount(flow.dst, minlength=seen.nodes).astype(float)))


ATTACKER = Attacker("receivers", SUBSCRIBER, EpochObservations, score_receivers, ("notes",))
"""


def test_an_attacker_of_a_file_attacks_stored_runs_and_its_controls_are_told(
    swept: tuple[Path, sweep.SweepResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = swept
    (tmp_path / "mine.py").write_text(ATTACKER)
    assert main(["lab", "attack", str(root), "--attacker", str(tmp_path / "mine.py"), "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert [each["attacker"] for each in told["controls"]] == ["receivers"]
    assert {row["attack"] for row in told["experiments"][0]["scores"]} == {"receivers"}
