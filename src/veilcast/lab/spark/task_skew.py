"""How evenly Spark's tasks were loaded: a stage ends with its slowest task.

Spark's own store of finished stages knows it, with or without its web page. A session of Spark Connect has no such
store; then nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskSkew(msgspec.Struct, frozen=True):
    """Of the stage with the slowest task of all."""

    tasks: int
    median_s: float
    slowest_s: float
    stages: int
    """Number of all stages that were run."""

    def to_dict(self) -> dict[str, float]:
        return msgspec.structs.asdict(self)

    def describe(self) -> str:
        return (
            f"the slowest of {self.stages:,} stages of Spark: {self.tasks:,} tasks, median {self.median_s:.1f} s, "
            f"slowest {self.slowest_s:.1f} s"
        )


def last_stage(spark: SparkSession | None) -> int:
    """The number of the last stage; -1 if there is none, or nothing is known."""
    return max((number for number, *_ in _list_stages(spark)), default=-1)


def measure_skew(spark: SparkSession | None, after: int = -1) -> TaskSkew | None:
    """Of the stages with numbers above `after`; None if there is none, or nothing is known."""
    found = [each for each in _list_stages(spark) if each[0] > after]
    if not found:
        return None
    _, tasks, median_s, slowest_s = max(found, key=lambda each: each[3])
    return TaskSkew(tasks, median_s, slowest_s, len(found))


def _list_stages(spark: SparkSession | None) -> Iterator[tuple[int, int, float, float]]:
    """Number of each stage that was run, its tasks, and the median and largest duration of those, in seconds."""
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        return
    # What tasks have told reaches the store a moment later.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    quantiles = context._gateway.new_array(context._gateway.jvm.double, 2)
    quantiles[0], quantiles[1] = 0.5, 1.0
    stages = context._jsc.sc().statusStore().stageList(None, False, True, quantiles, None)
    for place in range(stages.size()):
        stage = stages.apply(place)
        times = stage.taskMetricsDistributions()
        if times.isDefined():
            median, slowest = (times.get().executorRunTime().apply(rank) / _MS for rank in (0, 1))
            yield stage.stageId(), stage.numCompleteTasks(), median, slowest


_MS: Final = 1000
"""Spark counts milliseconds."""
