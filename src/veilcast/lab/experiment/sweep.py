"""Runs the sweep of an experiment, job by job, to measures, scores and verdicts.

Runs are made in this process or on Spark (`workplace`). Measures come to this process one job at a time, in the order
of their runs, and this process writes them, portion by portion. So executors need no disk in common with it, files are
few, and the same rows give the same bytes on any master. The memory of this process is bounded by a job.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.decoding import JsonDecoder
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import plan
from veilcast.lab.experiment import verdicts as curves
from veilcast.lab.experiment.definition import Experiment, ExperimentCell
from veilcast.lab.experiment.kept_tables import KeptFile, KeptOutput, count_kept_rows
from veilcast.lab.experiment.manifest import SweepManifest, describe_sweep
from veilcast.lab.experiment.params import RunFunction
from veilcast.lab.experiment.plan import RunPace, SeedPortion, SweepJob
from veilcast.lab.experiment.store import NewPortion, ResultStore
from veilcast.lab.experiment.task import DURATION_COLUMN, RunTask
from veilcast.lab.experiment.workplace import Workplace
from veilcast.lab.measure import summary
from veilcast.lab.spark.code_archive import code_fingerprint
from veilcast.lab.spark.locations import address_of
from veilcast.lab.spark.task_skew import TaskSkew, last_stage, measure_skew
from veilcast.lab.storage.location import LocalDirectory, Location
from veilcast.lab.tables import MeasureRow, ScoreRow, VerdictRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veilcast.lab.spark import Progress, SparkLater


class SweepResult(msgspec.Struct, frozen=True):
    """The result of a complete sweep."""

    manifest: SweepManifest
    runs: int
    """Number of runs made by this call; the others were stored before."""
    scores: pa.Table
    verdicts: pa.Table
    skew: TaskSkew | None = None
    """None if no run was made on Spark."""


def run_sweep(
    spark: SparkSession | SparkLater | None,
    name: str,
    experiment: Experiment,
    out: Location,
    *,
    engine: str,
    runner: RunFunction,
    seeds: int | None = None,
    quick: bool = False,
    data: Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    command: str = "",
    keep: Collection[str] = (),
) -> SweepResult:
    """Make the missing runs of the experiment's first `seeds` seeds in `out`. Stored seeds beyond those stay.

    Runs are made on the session; in this process, with None; or, with `SparkLater`, where it is quicker. `keep` names
    the observation tables to keep; `runner` must give them to its recorder.
    """
    experiment.check_requirements(name, engine, data)
    cells = tuple(experiment.make_cells(quick=quick, engine=engine))
    wanted = seeds or experiment.default_seeds(engine, quick=quick)
    now = describe_sweep(name, experiment, engine=engine, quick=quick, folder=data, command=command, keep=keep)
    place = Workplace(spark, progress)
    before_these = last_stage(place.session)
    done = 0
    stored = ResultStore(out, name)
    manifest = stored.begin(now.with_session(place.session), fresh=fresh)
    portions = plan.missing_portions(wanted, manifest.portions(), len(cells))
    total, pace = len(portions), None
    while portions:
        started = time.perf_counter()
        job = plan.next_job(
            portions, len(cells), place.cores, pace, count_kept_rows(manifest) if manifest.keep else None
        )
        if progress is not None:
            label = f"{name}, seeds {job.seeds[0]} to {job.seeds[-1]}"
            progress.begin(label, total - len(portions), total)
        before = place.session
        measures, pace, kept = _measure(place, cells, job, runner, manifest, out)
        if place.session is not before:
            manifest = manifest.with_session(place.session)
        # Executors import the source that exists when they start, and an executor can start late.
        if code_fingerprint() != manifest.fingerprint:
            raise StorageError(f"the code of veilcast was changed while {name} was swept with it: start again")
        took = time.perf_counter() - started
        made = [
            NewPortion(portion, _of(portion, measures), took * portion.seeds / len(job.seeds))
            for portion in job.portions
        ]
        manifest = stored.add(manifest, made, kept)
        done += len(cells) * len(job.seeds)
        portions = portions[len(job.portions) :]
    started = time.perf_counter()
    if progress is not None:
        progress.begin(f"{name}, scores", total, total)
    scores = _scores(place, name, cells, out, manifest)
    # A quick run is smaller than the numbers are about, and is not judged.
    judged = [] if quick else curves.judge_numbers(name, experiment, curves.ScoreTable(scores.to_pylist()), engine)
    verdicts = tables.from_rows(VerdictRow, judged)
    manifest = stored.finish(manifest, scores, verdicts, time.perf_counter() - started)
    return SweepResult(manifest, done, scores, verdicts, measure_skew(place.session, before_these))


def check_sweep(
    name: str,
    experiment: Experiment,
    out: Location,
    *,
    engine: str,
    quick: bool,
    data: Path | None,
    fresh: bool,
    keep: Collection[str] = (),
) -> None:
    """Raise the error that a sweep in `out` would raise, before anything is started."""
    now = describe_sweep(name, experiment, engine=engine, quick=quick, folder=data, command="", keep=keep)
    ResultStore(out, name).check(now, fresh=fresh)


def _measure(
    place: Workplace,
    cells: Sequence[ExperimentCell],
    job: SweepJob,
    runner: RunFunction,
    manifest: SweepManifest,
    out: Location,
) -> tuple[pa.Table, RunPace, list[KeptFile]]:
    """The rows of a job, the pace of its runs, and the files of kept tables."""
    lineage = {"engine": manifest.engine, "fingerprint": manifest.fingerprint, "commit": manifest.commit}
    keep = KeptOutput(address_of(out), manifest.experiment, manifest.keep, lineage) if manifest.keep else None
    named = tuple((cell.name, msgspec.json.encode(cell.params)) for cell in cells)
    task = RunTask(named, job.seeds, runner, manifest.data, keep, job.files)
    items = job.tasks if keep is not None else len(cells) * len(job.seeds)
    rows, listed = place.make_rows(task, items, job.tasks)
    kept = [file for text in listed for file in _FILES.decode(text)]
    # The shortest of each cell: the first run in a worker also imports and compiles.
    shortest = rows.group_by("cell").aggregate([(DURATION_COLUMN, "min")])[f"{DURATION_COLUMN}_min"]
    pace = RunPace(pc.mean(shortest).as_py(), len(rows) / (len(cells) * len(job.seeds)))
    return rows.drop_columns([DURATION_COLUMN]).cast(tables.arrow_schema(MeasureRow, stored=True)), pace, kept


def _of(portion: SeedPortion, measures: pa.Table) -> pa.Table:
    """The rows of a portion, in one chunk: the number of chunks depends on the tasks, and would show in the bytes of
    the file."""
    inside = pc.and_(pc.greater_equal(measures["seed"], portion.first), pc.less_equal(measures["seed"], portion.last))
    return measures.filter(inside).combine_chunks()


def _scores(
    place: Workplace, name: str, cells: Sequence[ExperimentCell], out: Location, manifest: SweepManifest
) -> pa.Table:
    """From the files. Few measures are summarised here; many by Spark if executors see the files, and else here, some
    cells at a time."""
    files = [one.measures.path for one in manifest.stored]
    rows = sum(one.rows for one in manifest.stored)
    shared = place.sees_files or not isinstance(out, LocalDirectory)
    if rows > _ROWS_HERE and place.session is not None and shared:
        found = _summarise_on_spark(place.session, name, out, files)
    else:
        found = []
        at_once = max(1, len(cells) * _ROWS_HERE // max(rows, 1))
        for first in range(0, len(cells), at_once):
            chosen = {} if at_once >= len(cells) else {"cell": [cell.name for cell in cells[first : first + at_once]]}
            measures = tables.read(out, MeasureRow, name, files, where=chosen)
            found += summary.summarise_table(measures).to_pylist()
    order = {cell.name: number for number, cell in enumerate(cells)}
    found.sort(key=lambda row: (order[row["cell"]], row["attack"], row["metric"], row["step"]))
    return tables.from_rows(ScoreRow, (ScoreRow(series=cells[order[row["cell"]]].series, **row) for row in found))


def _summarise_on_spark(spark: SparkSession, name: str, out: Location, files: Sequence[str]) -> list[dict[str, Any]]:
    from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error

    try:
        scores = summary.summarise_frame(tables.frame(spark, out, MeasureRow, name, files)).toArrow()
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    return list(scores.to_pylist())


_ROWS_HERE: Final = 3_000_000
"""Most measures that this process holds at once."""
_FILES: Final = JsonDecoder(list[KeptFile], TamperedError, "the files that a task lists are damaged")
