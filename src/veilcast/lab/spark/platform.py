"""Answers about a session of any kind: its master, its tasks at once, its progress, and kept rows.

A session of Spark Connect (`connect`) has no `sparkContext`. Everything else that attacks and measures need is frames,
SQL and Python functions, which all sessions have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error


class SparkPlatform(NamedTuple):
    """Where the work of a session is done."""

    master: str
    cores: int
    """Tasks at once."""
    java: str
    """The version; empty if it is not known."""


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return "connect" in type(spark).__module__.split(".")


def describe_platform(spark: SparkSession) -> SparkPlatform:
    if is_remote(spark):
        return _ask_server(spark)
    context = spark.sparkContext
    java = context._jvm.java.lang.System.getProperty("java.version") if context._jvm is not None else ""
    return SparkPlatform(context.master or "", context.defaultParallelism, str(java))


def follow_stages(spark: SparkSession, show: Callable[[str], object]) -> None:
    """Show the tasks of what runs on the server, as the server reports them."""

    def report(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        finished, total = (sum(getattr(each, name) for each in stages or ()) for name in _TASKS)
        show("" if done else f"{finished}/{total} tasks")

    spark.registerProgressHandler(report)  # type: ignore[arg-type]


def keep_rows(table: DataFrame) -> DataFrame:
    """The same rows, computed once, at their first use; two executors have them, and one may be lost."""
    # Persisted rows are found by comparing plans. A query that reads a plan with grouping sets twice renews it, and
    # does not find its rows. A checkpoint is found by itself.
    kept = table.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_2)
    if kept.sparkSession is table.sparkSession:
        return kept
    # Connect takes the checkpoint for one of the thread's active session, which need not be the session of the table.
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame
    from pyspark.sql.connect.plan import CachedRemoteRelation

    session: Any = table.sparkSession
    plan: Any = kept._plan
    return RemoteFrame(CachedRemoteRelation(plan._relation_id, session), session)


@lru_cache(maxsize=2)
def _ask_server(spark: SparkSession) -> SparkPlatform:
    """A range has a partition for each task at once, if nobody says how many it has."""
    try:
        parts = spark.range(0, 1 << 16).selectExpr("spark_partition_id() AS part").distinct().count()
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    return SparkPlatform(_NAME, parts, "")


_NAME: Final = "Spark Connect"
"""Stands for the server in results: its address may hold a token."""
_TASKS: Final = ("num_completed_tasks", "num_tasks")
