"""Work in parts: here one after the other, or as Spark tasks, one for each part.

A task gets its description in a few bytes and reads its part of a file itself. So executors must find the files under
the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Job = TypeVar("Job", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


def cut_all(
    files: Sequence[Path], cut: Callable[[Path, int], tuple[list[Job], str | None]]
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


def table(jobs: Sequence[Job], work: Callable[[Job], Iterable[pa.Table]], schema: pa.Schema) -> pa.Table:
    """The rows of all jobs, at once."""
    return pa.concat_tables([schema.empty_table(), *(table for job in jobs for table in work(job))])


def _one_each(spark: SparkSession, jobs: Sequence[Job]) -> DataFrame:
    return spark.range(0, len(jobs), 1, max(1, len(jobs)))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch["id"].to_pylist()


ROWS: Final = 1 << 16
"""Rows in one batch on its way to Spark."""
