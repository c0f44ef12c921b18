"""Where do the seconds of an attack on Spark go: Java, the session, the workers' start and imports, the work itself?

    python benchmarks/attack_phases.py [--rows N] [--attack NAME] [--json]

One process does the steps one after the other, over the tables of `attack_engines`. Each step adds one thing to the
step before it, so that its price shows. Beside wall-clock seconds stand the processor seconds of this process, of Java,
and of Python's workers.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from engines import lab_job, lab_pipeline, tiled_tables
from measurement.process_tree import process_tree, processor_seconds_of


class Phase(msgspec.Struct):
    name: str
    wall_s: float
    cpu_s: dict[str, float]
    """Processor seconds by kind of process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**7, metavar="N", help="rows of each table (%(default)d)")
    parser.add_argument("--attack", choices=list(lab_job.ATTACKS), default="notifications", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    phases = measure_phases(arguments.rows, arguments.attack)
    if arguments.json:
        print(json.dumps({"phases": msgspec.to_builtins(phases)}))
        return
    print(f"{arguments.attack}, {arguments.rows:,} rows, load {os.getloadavg()[0]:.1f}")
    print(f"{'':34} {'wall s':>7} {'driver':>7} {'Java':>7} {'workers':>7}  processor s")
    for each in phases:
        columns = " ".join(f"{each.cpu_s[kind]:7.2f}" for kind in ("driver", "java", "workers"))
        print(f"{each.name:34} {each.wall_s:7.2f} {columns}")


def measure_phases(rows: int, attack: str) -> list[Phase]:
    phases: list[Phase] = []

    def measure(name: str, work: Callable[[], Any]) -> Any:
        start, before = time.perf_counter(), _processor_seconds()
        found = work()
        after = _processor_seconds()
        phases.append(
            Phase(name, time.perf_counter() - start, {kind: max(0.0, after[kind] - before[kind]) for kind in after})
        )
        return found

    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder:
        tiled = tiled_tables.write_tables(Path(folder) / "tables", rows)
        opened = lab_pipeline.open_spark(len(os.sched_getaffinity(0)), None)
        spark = measure("Java and the session", opened.__enter__)
        try:
            measure("first job, without Python", lambda: spark.range(0, 2, 1, 2).toArrow())
            measure("first job with workers", lambda: _run_empty(spark, _pass_on))
            measure("the job's modules in workers", lambda: _run_empty(spark, _import_job))
            for name in ("first pass", "warm pass"):
                measure(name, lambda: lab_pipeline.guess_on_spark(spark, tiled, attack))
        finally:
            measure("end of the session", lambda: opened.__exit__(None, None, None))
        for name in ("in one process, first pass", "in one process, warm pass"):
            measure(name, lambda: lab_pipeline.guess_in_process(tiled, attack))
    return phases


def _run_empty(spark: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
    spark.range(0, 2, 1, 2).mapInArrow(function, "id bigint").toArrow()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _import_job(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from engines import lab_job

    assert lab_job.ATTACKS
    return batches


def _processor_seconds() -> dict[str, float]:
    """Of all processes so far. A worker that has ended counts with its parent."""
    found = {"driver": 0.0, "java": 0.0, "workers": 0.0}
    for process in process_tree(os.getpid()):
        try:
            program = Path(f"/proc/{process}/exe").readlink().name
        except OSError:
            continue
        kind = "driver" if process == os.getpid() else "workers" if program.startswith("python") else "java"
        found[kind] += processor_seconds_of(process)
    return found


if __name__ == "__main__":
    main()
