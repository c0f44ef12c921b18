"""A real standalone cluster on loopback, a master and two workers, gives what this machine alone gives, also to a file
system over the network.

The workers have a package `veilcast` of their own, which refuses to be imported: what runs there is what was sent.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from measurement.standalone_cluster import start_cluster
from support.stored_results import tables_among, tables_in
from support.webhdfs_server import webhdfs_server
from veilcast.lab.attack.foreign import read_attacker_file
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import Experiment, load_experiment
from veilcast.lab.experiment.params import Measure, RunFunction
from veilcast.lab.experiment.workplace import Workplace
from veilcast.lab.runs import table
from veilcast.lab.runs.stored_attack import attack_stored
from veilcast.lab.spark import session
from veilcast.lab.spark.hadoop_directory import HadoopDirectory
from veilcast.lab.spark.hadoop_gateway import HadoopSettings
from veilcast.lab.storage.location import LocalDirectory

pytestmark = pytest.mark.all_only


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's address."""
    base = tmp_path_factory.mktemp("cluster")
    decoy = base / "decoy" / "veilcast"
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").write_text("raise ImportError('this is what the worker had, not what it was sent')\n")
    with start_cluster(base, 2, memory="1g", environment={"PYTHONPATH": str(decoy.parent)}) as started:
        yield started.master


@pytest.fixture(scope="module")
def alone(two_cells: Experiment, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """What this machine makes of it on one core, and on two."""
    found = []
    for master in ("local[1]", "local[2]"):
        out = tmp_path_factory.mktemp("alone")
        with session(master) as made:
            sweep.run_sweep(made, "two", two_cells, LocalDirectory(out), engine="kernel", runner=engine())
        found.append(tables_in(out))
    return found


@pytest.fixture(scope="module")
def spark(cluster: str, alone: list[dict[str, bytes]]) -> Iterator[SparkSession]:
    with session(cluster) as made:
        yield made


def engine(kill: str | None = None) -> RunFunction:
    """The kernels. With a file to mark it by, the first run of seed 3 ends its executor: the Java machine, and all that
    it runs."""

    def run(params: Any, seed: int, data: Path | None) -> list[Measure]:
        from veilcast.lab.runs.table import ENGINES

        if kill is not None and seed == 3 and not os.path.exists(kill):
            open(kill, "w").close()
            with open(f"/proc/{os.getppid()}/stat") as daemon_of_workers:
                os.kill(int(daemon_of_workers.read().split()[3]), signal.SIGKILL)
        return ENGINES["kernel"](params, seed, data)

    return run


def test_the_workers_run_the_code_that_was_sent_kernels_included(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from veilcast.lab.models import graph

        for _ in batches:
            links = len(graph.small_world(50, 4, 0.2, 1).targets)
            yield pa.RecordBatch.from_pydict({"file": [str(graph.__file__)], "links": [links]})

    rows = spark.range(0, 4, 1, 4).mapInArrow(where, "file string, links bigint").toArrow().to_pylist()
    for row in rows:
        assert re.search(r"/veilcast-[0-9a-f]+\.zip/veilcast/lab/models/graph\.py$", row["file"])
    assert {row["links"] for row in rows} == {200}


def test_shuffles_use_every_core_of_the_cluster(spark: SparkSession) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "6"


def test_any_master_gives_the_same_tables(
    spark: SparkSession, alone: list[dict[str, bytes]], two_cells: Experiment, tmp_path: Path
) -> None:
    sweep.run_sweep(spark, "two", two_cells, LocalDirectory(tmp_path), engine="kernel", runner=engine())
    assert len(tables_in(tmp_path)) == len(("measures", "scores", "verdicts"))
    assert alone == [tables_in(tmp_path)] * 2


def test_executors_write_the_kept_tables_that_this_machine_alone_writes(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path
) -> None:
    found = []
    for place, out in ((spark, tmp_path / "cluster"), (None, tmp_path / "alone")):
        made = sweep.run_sweep(
            place,
            "two",
            two_cells,
            LocalDirectory(out),
            engine="kernel",
            runner=table.ENGINES["kernel"],
            keep=("cells", "truth"),
            seeds=2,
        )
        files = [file for stored in made.manifest.stored for file in stored.kept]
        found.append(sorted((file.table, file.rows, (out / file.path).read_bytes()) for file in files))
    assert found[0] == found[1]
    assert [table for table, _, _ in found[0]] == ["cells"] * 4 + ["truth"] * 4


def test_executors_write_kept_tables_over_the_network_with_the_settings_of_the_driver(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path
) -> None:
    with webhdfs_server() as store:
        store.files = {"/deep/there": b""}
        mount = HadoopSettings((("fs.viewfs.mounttable.lab.link./r", f"{store.uri}/deep"),))
        for place, out in ((spark, HadoopDirectory("viewfs://lab/r/out", mount)), (None, LocalDirectory(tmp_path))):
            sweep.run_sweep(
                place,
                "two",
                two_cells,
                out,
                engine="kernel",
                runner=table.ENGINES["kernel"],
                keep=("cells", "truth"),
                seeds=2,
            )
        assert tables_among(store.below("/deep/out")) == tables_in(tmp_path)
    tables = {name.split("/")[0] for name in tables_in(tmp_path)}
    assert tables == {"cells", "truth", "measures", "scores", "verdicts"}


def test_an_executor_that_is_killed_half_way_is_replaced(
    spark: SparkSession, alone: list[dict[str, bytes]], two_cells: Experiment, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    out = LocalDirectory(tmp_path / "out")
    sweep.run_sweep(spark, "two", two_cells, out, engine="kernel", runner=engine(str(marker)))
    assert marker.exists()
    assert tables_in(tmp_path / "out") == alone[0]


ATTACKED = """
title = "Kept, and attacked on a cluster"
kind = "mesh.epochs"
claim = "none"
reading = "none"
minutes = 1
seeds = 4
engines = ["kernel"]

[base]
nodes = 60
ratio = 0.2
steps = [1, 3]
attacks = ["leaf", "closure"]

[[series]]
name = "only"
"""
KILLER = """
import os
import signal

import numpy as np

from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import SUBSCRIBER, Attacker


def end_the_executor(seen):
    if not os.path.exists("{marker}"):
        open("{marker}", "w").close()
        with open(f"/proc/{{os.getppid()}}/stat") as daemon_of_workers:
            os.kill(int(daemon_of_workers.read().split()[3]), signal.SIGKILL)
    return np.zeros(seen.nodes)


ATTACKER = Attacker("killer", SUBSCRIBER, EpochObservations, end_the_executor, ("notes",))
"""


def test_an_attack_on_stored_runs_whose_executor_is_killed_gives_the_same_and_brings_scores_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.toml").write_text(ATTACKED)
    marker = tmp_path / "killed"
    (tmp_path / "killer.py").write_text(KILLER.format(marker=marker))
    name, experiment = load_experiment(str(tmp_path / "kept.toml"))
    keep = table.choose_kept_tables(["all"], ["mesh.epochs"], "kernel")
    stored = LocalDirectory(tmp_path)
    runner = table.ENGINES["kernel"]
    sweep.run_sweep(spark, name, experiment, stored, engine="kernel", runner=runner, seeds=4, keep=keep)
    brought: list[int] = []
    bring = Workplace._bring

    def count(place: Workplace, frame: DataFrame) -> pa.Table:
        rows = bring(place, frame)
        brought.append(len(rows))
        return rows

    monkeypatch.setattr(Workplace, "_bring", count)
    source = read_attacker_file(tmp_path / "killer.py")
    names = ["leaf", "closure", "killer"]
    there = attack_stored(spark, stored, name, names, sources=(source,))
    assert marker.exists()
    here = attack_stored(None, stored, name, names, sources=(source,))
    assert (there.guesses, there.compared, there.different) == (here.guesses, here.compared, 0)
    assert there.scores is not None
    assert there.scores.equals(here.scores)
    assert there.measures == here.measures > len(there.scores)
    assert brought == [len(there.scores) + 4]
    assert there.describe_skew()["tasks"] == 4
