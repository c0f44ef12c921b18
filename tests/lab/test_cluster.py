"""A real standalone cluster on loopback, a master and two workers, gives what this machine alone gives.

The workers have a package `veilcast` of their own, which refuses to be imported: what runs there is what was sent.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from support.stored_results import tables_in
from support.waits import HANG_S
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.params import Measure, RunFunction
from veilcast.lab.runs import table
from veilcast.lab.spark import java, session
from veilcast.lab.storage.location import LocalDirectory

pytestmark = pytest.mark.all_only


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's address."""
    base = tmp_path_factory.mktemp("cluster")
    decoy = base / "decoy" / "veilcast"
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").write_text("raise ImportError('this is what the worker had, not what it was sent')\n")
    environment = os.environ | {
        "JAVA_HOME": str(java.find_java().home(base)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(base),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYTHONPATH": str(decoy.parent),
    }
    with ExitStack() as running:
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = running.enter_context(daemon("master.Master", at, environment, r"Starting Spark master at (\S+)"))
        for number in range(2):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(base / f"work{number}")]
            ready = "Successfully registered with master"
            running.enter_context(daemon("worker.Worker", [*at, *size, master], environment, f"({ready})"))
        yield master


@contextmanager
def daemon(name: str, arguments: list[str], environment: dict[str, str], ready: str) -> Iterator[str]:
    """A process of Spark's, for the time of a `with`, from when it has said what shows that it is ready."""
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(ready, line):
                break
        else:
            pytest.fail(f"{name} ended before it was ready")
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANG_S)


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
    assert [table for table, _, _ in found[0]] == ["cells", "cells", "truth", "truth"]


def test_an_executor_that_is_killed_half_way_is_replaced(
    spark: SparkSession, alone: list[dict[str, bytes]], two_cells: Experiment, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    out = LocalDirectory(tmp_path / "out")
    sweep.run_sweep(spark, "two", two_cells, out, engine="kernel", runner=engine(str(marker)))
    assert marker.exists()
    assert tables_in(tmp_path / "out") == alone[0]
