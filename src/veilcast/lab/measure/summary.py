"""Many runs to one number: the mean over seeds, its spread, and its interval.

The interval is Student's at 95 %: runs are independent, and means of bounded measures over thirty seeds or more are
close to normal. Sums are rounded once, at their end (`math.fsum`), so a summary does not depend on the order in which
Spark collects the values, and is the same on any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum, inf, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from scipy.special import stdtrit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Summary(NamedTuple):
    value: float
    """Mean over the seeds."""
    spread: float
    """Standard deviation between runs."""
    low: float
    high: float
    """`low` and `high` are the 95 % interval of the mean."""
    seeds: int


def summarise(values: Iterable[float]) -> Summary:
    """At least one value is needed. One value tells neither spread nor interval: both are infinite."""
    numbers = list(values)
    count = len(numbers)
    mean = fsum(numbers) / count
    if count == 1:
        return Summary(mean, inf, -inf, inf, count)
    spread = sqrt(fsum((number - mean) ** 2 for number in numbers) / (count - 1))
    half = _reach(count, 1) * spread / sqrt(count)
    return Summary(mean, spread, mean - half, mean + half, count)


def widening(seeds: int, among: int) -> float:
    """Factor by which intervals of `seeds` seeds must grow so that `among` of them hold together at 95 % (Bonferroni),
    whatever the correlation of the runs they share."""
    return _reach(seeds, among) / _reach(seeds, 1) if seeds > 1 else 1.0


def _reach(seeds: int, among: int) -> float:
    return float(stdtrit(seeds - 1, 1 - _MISS / 2 / among))


def summarise_frame(measures: DataFrame) -> DataFrame:
    """The table `measures` to `scores`, without the column `series`, which the experiment defines."""
    from pyspark.sql import functions as sql

    summary = sql.udf(summarise, _TYPE, useArrow=False)
    gathered = measures.groupBy(*_KEYS).agg(summary(sql.collect_list("value")).alias("summary"))
    return gathered.select(*_KEYS, "summary.*")


_MISS: Final = 0.05
_KEYS: Final = ("experiment", "cell", "attack", "metric", "step")
_TYPE: Final = "value double, spread double, low double, high double, seeds int"
