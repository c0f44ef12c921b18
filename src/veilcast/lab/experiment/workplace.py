"""Where runs are made or attacked: in this process, or on Spark, by the same task.

A task is called with numbers of items and returns rows: `RunTask` makes runs, `AttackTask` attacks stored ones. The
rows of an item depend on the item alone, and leave in the order of the items. So the place shows in no byte of a
result, and work can move to Spark in the middle of a job.

Java, a session and its workers need about ten seconds before the first run. Work that takes less is done here, without
them. Nobody knows beforehand how long runs take, so a sweep begins here, and looks at the clock after each run. If it
has worked for `HERE_S` seconds, Java starts in a thread, while this process goes on; when it is ready, Spark takes the
runs that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.experiment.task import DURATION_COLUMN, LISTED_COLUMN, task_schema
from veilcast.lab.measure.summary import summarise_frame, summarise_table
from veilcast.lab.spark.later import SparkLater
from veilcast.lab.tables import MeasureRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        self._made = 0
        """Items of the last call that this process made."""

    def require_session(self) -> SparkSession:
        """The session, started now if need be. Raises `ConfigError` if this work was to do without."""
        if self.session is None:
            if self._later is None:
                raise ConfigError("a run of this work is too large for one process; it needs a session of Spark")
            self.session = self._later.get()
        return self.session

    @property
    def cores(self) -> int:
        if self.session is None:
            return 1
        from veilcast.lab.spark.platform import describe_platform

        return describe_platform(self.session).cores

    @property
    def sees_files(self) -> bool:
        """Whether executors have this machine's files."""
        if self.session is None:
            return False
        from veilcast.lab.spark.platform import describe_platform

        return describe_platform(self.session).master.startswith("local")

    def make_rows(self, task: RowTask, items: int, tasks: int) -> tuple[pa.Table, list[str]]:
        """The rows of the items with the numbers below `items`, in order, each with a duration; and what the tasks list
        beside rows. `tasks` is the most tasks of Spark."""
        rows = self._make_here(task, items)
        made = self._made
        if made < items and self.session is not None:
            there = self._make_on_spark(self.session, task, made, items, tasks)
            rows = pa.concat_tables([rows, self._bring(there).cast(task_schema())])
        return split_rows(rows)

    def make_scores(
        self, task: RowTask, items: int, tasks: int, experiment: str, beside: pa.Table
    ) -> tuple[pa.Table, list[str]]:
        """The scores of the same measures, and of rows `beside` them; and what the tasks list.

        Rows that Spark makes are summarised by Spark. No measure comes to this process, but what it made itself.
        """
        rows = pa.concat_tables([beside, self._make_here(task, items)])
        if self._made == items or self.session is None:
            measures, listed = split_rows(rows)
            return summarise_table(_name_experiment(measures, experiment)), listed
        from pyspark.sql import functions as sql

        there = self._make_on_spark(self.session, task, self._made, items, tasks)
        if len(rows):
            there = there.unionByName(tables.make_frame(self.session, rows))
        named = there.withColumn("experiment", sql.lit(experiment))
        found = self._bring(summarise_frame(named, beside=[LISTED_COLUMN]))
        # Equal texts of several tasks are one row.
        told = zip(found[LISTED_COLUMN].to_pylist(), found["seeds"].to_pylist(), strict=True)
        listed = [text for text, times in told if text for _ in range(times)]
        scores = found.filter(pc.equal(found[LISTED_COLUMN], "")).drop_columns([LISTED_COLUMN])
        return scores.sort_by([(name, "ascending") for name in scores.column_names]), listed

    def _make_here(self, task: RowTask, items: int) -> pa.Table:
        """The rows of the first items, until Spark takes the others."""
        parts: list[pa.RecordBatch] = []
        self._made = 0
        while self._made < items and self.session is None:
            start = time.perf_counter()
            parts += task(iter([pa.RecordBatch.from_pydict({"id": [self._made]})]))
            self._made += 1
            self._worked_s += time.perf_counter() - start
            self._move_if_it_pays(items - self._made)
            if self._progress is not None and self.session is None:
                starting = "; Java starts" if self._java_starts else ""
                self._progress.show(f"run {self._made:,} of {items:,}{starting}")
        return pa.Table.from_batches(parts, task_schema())

    def _make_on_spark(self, spark: SparkSession, task: RowTask, first: int, end: int, tasks: int) -> DataFrame:
        schema = tables.spark_schema(MeasureRow, stored=True).add(DURATION_COLUMN, "double", nullable=False)
        schema = schema.add(LISTED_COLUMN, "string", nullable=False)
        return spark.range(first, end, 1, min(tasks, end - first)).mapInArrow(task, schema)

    def _bring(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame, in this process."""
        from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error

        try:
            return frame.toArrow()
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


def _name_experiment(measures: pa.Table, experiment: str) -> pa.Table:
    return measures.append_column("experiment", pa.repeat(pa.scalar(experiment), len(measures)))


def split_rows(rows: pa.Table) -> tuple[pa.Table, list[str]]:
    """Rows of `measures` with their durations, and what tasks list beside them."""
    listed = rows.filter(pc.not_equal(rows[LISTED_COLUMN], ""))[LISTED_COLUMN].to_pylist()
    return rows.filter(pc.equal(rows[LISTED_COLUMN], "")).drop_columns([LISTED_COLUMN]), listed


HERE_S: Final = 4.0
"""Seconds of runs in this process before Java is started."""

RowTask: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Takes batches with a column `id`, the numbers of items, and returns rows with the columns of `task_schema`."""
