"""An experiment, swept: its runs on Spark, job by job, to measures, scores and verdicts.

Measures come to this process a job at a time, in the order of their runs, and are written here, portion by portion: so
executors need no disk in common with us, files are few, and the same rows are the same bytes on any master. What this
process holds is bounded by a job. The scores are Spark's again: from the files, however many, where the executors see
them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from veilcast.errors import StorageError
from veilcast.lab import tables
from veilcast.lab.measure import summary
from veilcast.lab.spark import SPARK_ERRORS, Progress, told
from veilcast.lab.spark.shipping import fingerprint
from veilcast.lab.sweep import curves, plan, store
from veilcast.lab.sweep.engines import Engine
from veilcast.lab.sweep.experiment import Cell, Experiment
from veilcast.lab.sweep.manifest import Manifest, describe
from veilcast.lab.sweep.plan import Job, Pace, Portion
from veilcast.lab.sweep.task import TOOK, Task
from veilcast.lab.tables import Measured, Run, Score, Verdict


class Result(msgspec.Struct, frozen=True):
    """A sweep that is complete."""

    manifest: Manifest
    runs: int
    """Done this time; the others were there."""
    scores: pa.Table
    verdicts: pa.Table


def run(
    spark: SparkSession,
    name: str,
    experiment: Experiment,
    out: Path,
    *,
    engine: str,
    runner: Engine,
    seeds: int | None = None,
    quick: bool = False,
    data: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    command: str = "",
) -> Result:
    """Do what is missing of the experiment's first `seeds` seeds in `out`. Seeds that are there beyond those stay."""
    experiment.check_means(name, engine, data)
    cells = tuple(experiment.cells(quick=quick, engine=engine))
    wanted = seeds or experiment.seeds_by(engine, quick=quick)
    now = describe(name, experiment, engine=engine, quick=quick, folder=data, command=command)
    done = 0
    try:
        with store.opened(out, name) as stored:
            manifest = stored.begin(now.on(spark), fresh=fresh)
            portions = plan.missing(wanted, manifest.portions())
            total, pace = len(portions), None
            while portions:
                started = time.perf_counter()
                job = plan.job(portions, len(cells), spark.sparkContext.defaultParallelism, pace)
                if progress is not None:
                    label = f"{name}, seeds {job.seeds[0]} to {job.seeds[-1]}"
                    progress.begin(label, total - len(portions), total)
                measures, pace = _measure(spark, cells, job, runner, manifest.data)
                # Executors import what lies there when they start, and one may have started late.
                if fingerprint() != manifest.fingerprint:
                    raise StorageError(f"the code of veilcast was changed while {name} was swept with it: start again")
                took = time.perf_counter() - started
                for portion in job.portions:
                    runs = _runs(name, cells, portion, manifest.commit)
                    share = took * portion.seeds / len(job.seeds)
                    manifest = stored.add(manifest, portion, runs, _of(portion, measures), share)
                    done += len(runs)
                portions = portions[len(job.portions) :]
            started = time.perf_counter()
            if progress is not None:
                progress.begin(f"{name}, scores", total, total)
            scores = _scores(spark, name, cells, out, stored.files(manifest))
            # A quick run is smaller than what was published, and is not held against it.
            judged = [] if quick else curves.verdicts(name, experiment, curves.Scores(scores.to_pylist()))
            verdicts = tables.from_rows(Verdict, judged)
            manifest = stored.finish(manifest, scores, verdicts, time.perf_counter() - started)
    except SPARK_ERRORS as error:
        raise told(error) from error
    return Result(manifest, done, scores, verdicts)


def check(
    name: str, experiment: Experiment, out: Path, *, engine: str, quick: bool, data: Path | None, fresh: bool
) -> None:
    """Raise what would keep a sweep from being made in `out`, before anything is started for it."""
    now = describe(name, experiment, engine=engine, quick=quick, folder=data, command="")
    with store.opened(out, name) as stored:
        stored.check(now, fresh=fresh)


def _measure(
    spark: SparkSession, cells: Sequence[Cell], job: Job, runner: Engine, data: str | None
) -> tuple[pa.Table, Pace]:
    """The rows of a job, and how fast they came."""
    named = tuple((cell.name, msgspec.json.encode(cell.params)) for cell in cells)
    numbers = spark.range(0, len(cells) * len(job.seeds), 1, job.tasks)
    schema = tables.spark_schema(Measured, stored=True).add(TOOK, "double", nullable=False)
    rows = numbers.mapInArrow(Task(named, job.seeds, runner, data), schema).toArrow()
    # The shortest of each cell: the first run in a worker also loads what all of them need.
    shortest = rows.group_by("cell").aggregate([(TOOK, "min")])[f"{TOOK}_min"]
    pace = Pace(pc.mean(shortest).as_py(), len(rows) / (len(cells) * len(job.seeds)))
    return rows.drop_columns([TOOK]).cast(tables.arrow_schema(Measured, stored=True)), pace


def _of(portion: Portion, measures: pa.Table) -> pa.Table:
    """Its rows of a job's, in one piece: into how many they come depends on the tasks, and shows in a file's bytes."""
    inside = pc.and_(pc.greater_equal(measures["seed"], portion.first), pc.less_equal(measures["seed"], portion.last))
    return measures.filter(inside).combine_chunks()


def _runs(name: str, cells: Sequence[Cell], portion: Portion, commit: str) -> pa.Table:
    rows = []
    for cell in cells:
        params = msgspec.json.encode(cell.params).decode()
        for seed in range(portion.first, portion.last + 1):
            rows.append(Run(f"{cell.name} seed={seed}", name, cell.name, params, seed, commit))
    return tables.from_rows(Run, rows)


def _scores(spark: SparkSession, name: str, cells: Sequence[Cell], out: Path, files: Sequence[Path]) -> pa.Table:
    if (spark.sparkContext.master or "").startswith("local"):
        measures = tables.frame(spark, out, Measured, name, files)
    else:
        measures = spark.createDataFrame(tables.read(out, Measured, name, files))
    rows = summary.scores(measures).toArrow().to_pylist()
    order = {cell.name: number for number, cell in enumerate(cells)}
    rows.sort(key=lambda row: (order[row["cell"]], row["attack"], row["metric"], row["step"]))
    return tables.from_rows(Score, (Score(series=cells[order[row["cell"]]].series, **row) for row in rows))
