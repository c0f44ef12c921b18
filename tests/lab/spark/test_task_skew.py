"""Skew is that of the stage with the slowest task, among the stages of the work in question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from veilcast.lab.spark import task_skew
from veilcast.lab.spark.task_skew import TaskSkew, last_stage, measure_skew

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_stage_with_the_slowest_task_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [(3, 8, 9.0, 99.0), (4, 36, 2.1, 24.0), (5, 2, 9.0, 9.5)]
    monkeypatch.setattr(task_skew, "_list_stages", lambda spark: iter(stages))
    spark = cast("SparkSession", object())
    assert last_stage(spark) == 5
    found = measure_skew(spark, after=3)
    assert found == TaskSkew(36, 2.1, 24.0, 2)
    assert found.describe() == "the slowest of 2 stages of Spark: 36 tasks, median 2.1 s, slowest 24.0 s"
    assert measure_skew(spark, after=5) is None


def test_without_a_session_or_a_store_nothing_is_known() -> None:
    connect: Any = object()
    assert measure_skew(None) is None
    assert measure_skew(connect) is None
    assert last_stage(None) == -1


@pytest.mark.all_only
def test_a_job_of_spark_is_found_with_all_its_tasks(spark: SparkSession) -> None:
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    before = last_stage(spark)
    spark.range(0, 10, 1, 5).mapInArrow(pass_on, "id bigint").toArrow()
    found = measure_skew(spark, before)
    assert found is not None
    assert (found.tasks, found.stages) == (5, 1)
    assert 0 <= found.median_s <= found.slowest_s
