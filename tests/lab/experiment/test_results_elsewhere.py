"""Results on a file system over the network, which renames nothing, are those of a directory, byte for byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.stored_results import tables_among, tables_in
from support.waits import HANG_S
from support.webhdfs_server import WebHdfs, webhdfs_server
from veilcast.errors import StorageError
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import Experiment, load_experiment
from veilcast.lab.experiment.manifest import read_manifest
from veilcast.lab.report import results_page
from veilcast.lab.runs.stored_attack import attack_stored
from veilcast.lab.runs.table import ENGINES, choose_kept_tables
from veilcast.lab.spark.hadoop_directory import HadoopDirectory
from veilcast.lab.spark.hadoop_gateway import HadoopSettings
from veilcast.lab.storage.location import LocalDirectory, Location

pytestmark = pytest.mark.all_only

EXPERIMENT = """
title = "Away"
kind = "mesh.epochs"
claim = "none"
reading = "none"
minutes = 1
seeds = 4
engines = ["kernel"]

[base]
nodes = 40
ratio = 0.2
insiders = 0.15
steps = [1, 3]
attacks = ["leaf", "disclosure"]

[[series]]
name = "plain"

[[series]]
name = "hardened"
params = { kappa = 0.6 }

[[figures]]
name = "auc"
title = "AUC"
x = "step"
x_label = "epochs"
y_label = "AUC"
curves = [{ label = "leaf", series = "plain", metric = "auc", attack = "leaf" }]
"""


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("experiment") / "away.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def definition(away: Path) -> Experiment:
    return load_experiment(str(away))[1]


@pytest.fixture(scope="module")
def here(definition: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two seeds, continued to four."""
    root = tmp_path_factory.mktemp("here")
    for seeds in (2, 4):
        run(None, definition, LocalDirectory(root), seeds)
    attack_stored(None, LocalDirectory(root), "away", out=LocalDirectory(root / "attacked"))
    return root


@pytest.fixture
def store(spark: SparkSession) -> Iterator[WebHdfs]:
    with webhdfs_server() as store:
        yield store


def run(spark: SparkSession | None, definition: Experiment, out: Location, seeds: int) -> None:
    keep = choose_kept_tables(["all"], ["mesh.epochs"], "kernel")
    sweep.run_sweep(spark, "away", definition, out, engine="kernel", runner=ENGINES["kernel"], seeds=seeds, keep=keep)


def place(store: WebHdfs, name: str = "/results") -> HadoopDirectory:
    return HadoopDirectory(f"{store.uri}{name}", HadoopSettings())


def of_sweep(tables: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in tables.items() if not name.startswith("attacked/")}


def of_attack(tables: dict[str, bytes]) -> dict[str, pa.Table]:
    """The rows: the metadata of guesses names the location that was attacked."""
    return {
        name: pq.read_table(pa.BufferReader(data)).replace_schema_metadata()
        for name, data in tables.items()
        if name.startswith("attacked/")
    }


def test_a_killed_sweep_is_continued_attacked_and_reported_as_in_a_directory(
    store: WebHdfs, away: Path, definition: Experiment, here: Path, tmp_path: Path
) -> None:
    results = place(store)
    run(None, definition, results, 2)
    reached, killed = threading.Event(), threading.Event()

    def wait_for_the_kill(operation: str, path: str) -> None:
        if operation == "CREATE" and path.endswith("/manifests/away/000004.json") and not reached.is_set():
            reached.set()
            killed.wait(HANG_S)

    store.watch = wait_for_the_kill
    command = ["lab", "run", str(away), "--out", results.place, "--keep", "all", "--seeds", "4"]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from veilcast.cli.main import main; sys.exit(main())", *command],
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert reached.wait(HANG_S)
    process.send_signal(signal.SIGKILL)
    told = process.communicate(timeout=HANG_S)[0]
    killed.set()
    assert process.returncode == -signal.SIGKILL, told
    # Its files stay, unlisted, and its last entry is empty or absent.
    assert len(tables_among(store.below("/results"))) == len(of_sweep(tables_in(here)))
    assert read_manifest(results, "away").seeds == 2
    run(None, definition, results, 4)
    assert of_sweep(tables_among(store.below("/results"))) == of_sweep(tables_in(here))
    attack_stored(None, results, "away", out=place(store, "/results/attacked"))
    assert of_attack(tables_among(store.below("/results"))) == of_attack(tables_in(here)) != {}
    for root, name in ((results, "there"), (LocalDirectory(here), "here")):
        results_page.write_report([root], tmp_path / name / "report.html")
    drawn = [sorted((tmp_path / name / "figures").iterdir()) for name in ("there", "here")]
    assert [file.read_bytes() for file in drawn[0]] == [file.read_bytes() for file in drawn[1]] != []
    assert not {request for request in store.requests if request.startswith(("RENAME", "APPEND"))}


def test_workers_of_executors_write_and_read_there_themselves(
    store: WebHdfs, spark: SparkSession, definition: Experiment, here: Path
) -> None:
    results = place(store)
    for seeds in (2, 4):
        run(spark, definition, results, seeds)
    assert of_sweep(tables_among(store.below("/results"))) == of_sweep(tables_in(here))
    attacked = attack_stored(spark, results, "away", out=place(store, "/results/attacked"))
    assert attacked.compared == attacked.guesses > attacked.different == 0
    assert of_attack(tables_among(store.below("/results"))) == of_attack(tables_in(here))


def test_of_two_sweeps_at_once_the_later_wins_and_nothing_is_lost(
    store: WebHdfs, definition: Experiment, here: Path
) -> None:
    results, later = place(store), list[str]()

    def begin_another(operation: str, path: str) -> None:
        if operation == "CREATE" and path.endswith("/manifests/away/000001.json") and not later:
            later.append(path)
            run(None, definition, place(store), 2)

    store.watch = begin_another
    with pytest.raises(StorageError, match=r"^another sweep of away has begun in webhdfs://.*, and this one ends"):
        run(None, definition, results, 2)
    assert later
    assert read_manifest(results, "away").status == "complete"
    run(None, definition, results, 4)
    assert of_sweep(tables_among(store.below("/results"))) == of_sweep(tables_in(here))
