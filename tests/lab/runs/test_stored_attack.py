"""Attacks on stored runs: the guesses and the measures of the sweep, from its kept tables alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilcast.cli.main import main
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.kept_tables import read_kept
from veilcast.lab.runs import stored_attack
from veilcast.lab.runs.stored_attack import attack_stored, compare_guesses
from veilcast.lab.runs.table import ENGINES, choose_kept_tables
from veilcast.lab.tables import MeasureRow, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
_WIRES = "nodes = 12\npublications = 4\nratio = 0.3\nwire = 'prompt'"
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
    "mesh.wires": OTHER.format(kind="mesh.wires", engine="machines", base=_WIRES),
}


def refuse_spark() -> NoReturn:
    raise AssertionError("this is small work")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sweep.SweepResult]:
    """A sweep with all its tables, in this process."""
    root = tmp_path_factory.mktemp("kept")
    (root / "again.toml").write_text(EXPERIMENT)
    name, definition = load_experiment(str(root / "again.toml"))
    keep = choose_kept_tables(["all"], ["mesh.epochs"], "kernel")
    return root, sweep.run_sweep(
        None, name, definition, root, engine="kernel", runner=ENGINES["kernel"], seeds=2, keep=keep
    )


def values(measures: pa.Table, attacks: set[str]) -> dict[tuple[Any, ...], float]:
    keys = ("cell", "seed", "attack", "metric", "step")
    return {tuple(row[key] for key in keys): row["value"] for row in measures.to_pylist() if row["attack"] in attacks}


def test_a_stored_run_gives_the_guesses_and_measures_of_the_sweep_to_the_last_digit(
    swept: tuple[Path, sweep.SweepResult],
) -> None:
    root, result = swept
    attacked = attack_stored(root, "again", start_spark=refuse_spark)
    kept = read_kept(root, result.manifest, "guesses")
    assert compare_guesses(root, "again", attacked.guesses) == (len(kept), 0)
    assert len(attacked.guesses) == len(kept) > 1_000
    assert attacked.measures is not None
    attacks = {"leaf", "closure", "disclosure", "group-testing", "linear", "predecessor", "first-spy"}
    before = values(read(root, MeasureRow, "again"), attacks)
    assert values(attacked.measures, attacks) == before
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
    sweep.run_sweep(None, name, definition, tmp_path, engine=engine, runner=ENGINES[engine], seeds=1, keep=keep)
    attacked = attack_stored(tmp_path, name, start_spark=refuse_spark)
    assert compare_guesses(tmp_path, name, attacked.guesses) == (len(attacked.guesses), 0)
    assert attacked.measures is not None
    found = values(attacked.measures, set(attacked.measures["attack"].to_pylist()))
    before = values(read(tmp_path, MeasureRow, name), {key[2] for key in found})
    assert len(found) > 5
    assert {key: before[key] for key in found} == found


@pytest.mark.all_only
def test_spark_gives_the_same_guesses_and_scores(spark: SparkSession, swept: tuple[Path, sweep.SweepResult]) -> None:
    root, _ = swept
    here = attack_stored(root, "again", start_spark=refuse_spark)
    there = attack_stored(root, "again", start_spark=lambda: spark, on_spark=True)
    assert compare_guesses(root, "again", there.guesses)[1] == 0
    assert there.scores is not None
    assert here.scores is not None
    assert there.scores.equals(here.scores)


def test_a_named_attacker_alone_is_asked_even_if_the_sweep_did_not_ask_it(
    swept: tuple[Path, sweep.SweepResult],
) -> None:
    root, _ = swept
    attacked = attack_stored(root, "again", ["centrality"], start_spark=refuse_spark)
    assert set(attacked.guesses["attack"].to_pylist()) >= {"centrality"}
    assert "leaf" not in attacked.guesses["attack"].to_pylist()
    assert attacked.measures is not None
    assert set(attacked.measures["attack"].to_pylist()) == {"centrality"}
    assert compare_guesses(root, "again", attacked.guesses)[1] == 0


def test_a_changed_guess_is_counted(swept: tuple[Path, sweep.SweepResult]) -> None:
    root, _ = swept
    attacked = attack_stored(root, "again", ["leaf"], start_spark=refuse_spark).guesses
    place = attacked.column_names.index("score")
    scores = attacked["score"].to_numpy().copy()
    scores[7] += 1
    assert compare_guesses(root, "again", attacked.set_column(place, "score", pa.array(scores)))[1] == 1


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
    attack_stored(swept[0], "again", ["leaf"], start_spark=refuse_spark)
    assert "cells" in handed
    assert not handed & {"truth", "guesses"}


def test_the_command_tells_that_kept_guesses_are_the_same_and_writes_its_own(
    swept: tuple[Path, sweep.SweepResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = swept
    out = tmp_path / "guesses.parquet"
    assert main(["lab", "attack", str(root), "--attacker", "leaf", "--out", str(out), "--json"]) == 0
    (told,) = msgspec.json.decode(capsys.readouterr().out)["experiments"]
    assert (told["experiment"], told["different"]) == ("again", 0)
    assert told["compared"] == told["guesses"] == pq.read_table(out).num_rows > 0
    assert any(row["metric"] == "auc" for row in told["scores"])


def test_what_cannot_be_attacked_is_told_in_one_line(swept: tuple[Path, sweep.SweepResult], tmp_path: Path) -> None:
    root, _ = swept
    with pytest.raises(ConfigError, match=r"no attack .*nonsense"):
        attack_stored(root, "again", ["nonsense"], start_spark=refuse_spark)
    with pytest.raises(StorageError):
        attack_stored(tmp_path, "again", start_spark=refuse_spark)
    with pytest.raises(ConfigError, match=r"mesh\.clocks by kernel cannot be attacked again"):
        stored_attack.find_stored_attack("mesh.clocks", "kernel")
