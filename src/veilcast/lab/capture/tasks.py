"""Work in parts: here one after the other, or as Spark tasks, one for each part.

A task gets its description in a few bytes and reads its part of a file itself. So executors must find the files under
the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pyarrow as pa

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError
from veilcast.lab import tables
from veilcast.lab.capture import duplicates
from veilcast.lab.capture.reading_report import ReadingReport
from veilcast.lab.capture.remote_files import RecordPath
from veilcast.observe import CellRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Job = TypeVar("Job", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


@dataclass(frozen=True)
class ReadingPlan:
    """The second pass over files: their parts, and how the cells of a part are made."""

    parts: Sequence[Any]
    work: Callable[[Any], Iterator[pa.Table]]
    """Makes the cells of a part, piece by piece."""
    marked: bool
    """Whether packets were seen in several places: the cells have marks then, and duplicates are to be folded."""
    report: ReadingReport

    def table(self) -> pa.Table:
        """The cells of all parts."""
        found = [piece for part in self.parts for piece in self.work(part)]
        if self.marked:
            return duplicates.fold_duplicates(pa.concat_tables(found))
        return pa.concat_tables([tables.arrow_schema(CellRow).empty_table(), *found])

    def frame(self, spark: SparkSession) -> DataFrame:
        """The same cells, with a task for each part."""
        schema = tables.spark_schema(CellRow)
        if self.marked:
            return duplicates.fold_frame(frame(spark, self.parts, self.work, duplicates.add_mark_columns(schema)))
        return frame(spark, self.parts, self.work, schema)


def cut_all(
    files: Sequence[RecordPath], cut: Callable[[RecordPath, int], tuple[list[Job], str | None]]
) -> tuple[list[Job], list[str | None]]:
    """The parts of all files, and the damage at each file's end."""
    every = [cut(file, number) for number, file in enumerate(files)]
    return [part for parts, _ in every for part in parts], [damage for _, damage in every]


def run_jobs(
    spark: SparkSession | None, jobs: Sequence[Job], work: Callable[[Job], Answer], answer: type[Answer]
) -> list[Answer]:
    """An answer for each job, in their order."""
    if spark is None or len(jobs) < 2:
        return [work(job) for job in jobs]
    from veilcast.lab.spark import SPARK_ERRORS, translate_error

    def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            columns = [pa.array([number]), pa.array([msgspec.msgpack.encode(work(jobs[number]))], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["number", "answer"])

    try:
        rows = _one_each(spark, jobs).mapInArrow(answers, "number bigint, answer binary").collect()
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    answered = {row["number"]: row["answer"] for row in rows}
    decoder = MsgpackDecoder(answer, TamperedError, "a worker's answer is damaged")
    return [decoder.decode(answered[number]) for number in range(len(jobs))]


def frame(
    spark: SparkSession, jobs: Sequence[Job], work: Callable[[Job], Iterable[pa.Table]], schema: StructType
) -> DataFrame:
    """The rows of all jobs, evaluated lazily."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            for table in work(jobs[number]):
                yield from table.to_batches(max_chunksize=ROWS)

    return _one_each(spark, jobs).mapInArrow(rows, schema)


def _one_each(spark: SparkSession, jobs: Sequence[Job]) -> DataFrame:
    return spark.range(0, len(jobs), 1, max(1, len(jobs)))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch["id"].to_pylist()


ROWS: Final = 1 << 16
"""Rows in one batch on its way to Spark."""
