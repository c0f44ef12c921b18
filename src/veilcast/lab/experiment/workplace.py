"""Where the runs of a sweep are made: in this process, or on Spark, by the same task.

A run depends on its parameters and its seed alone, and rows leave in the order of the runs. So the place shows in no
byte of a result, and a sweep can move to Spark in the middle of a job.

Java, a session and its workers need about ten seconds before the first run. Work that takes less is done here, without
them. Nobody knows beforehand how long runs take, so a sweep begins here, and looks at the clock after each run. If it
has worked for `HERE_S` seconds, Java starts in a thread, while this process goes on; when it is ready, Spark takes the
runs that are left.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from veilcast.decoding import JsonDecoder
from veilcast.errors import TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment.kept_tables import KeptFile
from veilcast.lab.experiment.task import DURATION_COLUMN, KEPT_COLUMN, RunTask, task_schema
from veilcast.lab.spark.later import SparkLater
from veilcast.lab.tables import MeasureRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veilcast.lab.spark.progress import Progress


class Workplace:
    """Begins on a session, or without one in this process: with None it stays there, with `SparkLater` it moves when
    that pays."""

    def __init__(self, spark: SparkSession | SparkLater | None, progress: Progress | None) -> None:
        self._later = spark if isinstance(spark, SparkLater) else None
        self.session: SparkSession | None = spark.session if isinstance(spark, SparkLater) else spark
        self._progress = progress
        self._worked_s = 0.0
        self._java_starts = False

    @property
    def cores(self) -> int:
        return self.session.sparkContext.defaultParallelism if self.session is not None else 1

    @property
    def sees_files(self) -> bool:
        """Whether executors have this machine's files."""
        return self.session is not None and (self.session.sparkContext.master or "").startswith("local")

    def make_runs(self, task: RunTask, runs: int, tasks: int) -> tuple[pa.Table, list[KeptFile]]:
        """The rows of the runs with the numbers below `runs`, in order, with the duration of each run; and the files
        of kept tables. If tables are kept, a task makes all runs of one cell, wherever it is."""
        at_once = len(task.seeds) if task.keep is not None else 1
        parts: list[pa.RecordBatch] = []
        made = 0
        while made < runs and self.session is None:
            start = time.perf_counter()
            parts += task(iter([pa.RecordBatch.from_pydict({"id": range(made, made + at_once)})]))
            made += at_once
            self._worked_s += time.perf_counter() - start
            self._move_if_it_pays(runs - made)
            if self._progress is not None and self.session is None:
                starting = "; Java starts" if self._java_starts else ""
                self._progress.show(f"run {made:,} of {runs:,}{starting}")
        rows = pa.Table.from_batches(parts, task_schema())
        if made < runs and self.session is not None:
            tasks = (runs - made) // at_once if task.keep is not None else min(tasks, runs - made)
            rows = pa.concat_tables([rows, self._make_on_spark(self.session, task, made, runs, tasks)])
        listed = rows.filter(pc.not_equal(rows[KEPT_COLUMN], ""))[KEPT_COLUMN].to_pylist()
        kept = [file for text in listed for file in _FILES.decode(text)]
        return rows.filter(pc.equal(rows[KEPT_COLUMN], "")).drop_columns([KEPT_COLUMN]), kept

    def _make_on_spark(self, spark: SparkSession, task: RunTask, first: int, end: int, tasks: int) -> pa.Table:
        from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error

        schema = tables.spark_schema(MeasureRow, stored=True).add(DURATION_COLUMN, "double", nullable=False)
        schema = schema.add(KEPT_COLUMN, "string", nullable=False)
        try:
            return spark.range(first, end, 1, tasks).mapInArrow(task, schema).toArrow().cast(task_schema())
        except SPARK_ERRORS as error:
            raise translate_error(error) from error

    def _move_if_it_pays(self, left: int) -> None:
        if self._later is None or self._worked_s < HERE_S:
            return
        self._later.begin()
        self._java_starts = True
        if left and self._later.is_ready:
            self.session = self._later.get()
            if self._progress is not None:
                self._progress.watch(self.session)


HERE_S: Final = 4.0
"""Seconds of runs in this process before Java is started."""
_FILES: Final = JsonDecoder(list[KeptFile], TamperedError, "the files that a task lists are damaged")
