"""Many runs to one number: the mean over seeds, its spread, and its interval.

The interval is Student's at 95 %: runs are independent, and means of bounded measures over thirty seeds or more are
close to normal. Sums are rounded once, at their end (`math.fsum`), so a summary does not depend on the order in which
values are collected, and is the same in one process and on any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from math import fsum, inf, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
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


@cache
def _reach(seeds: int, among: int) -> float:
    return float(stdtrit(seeds - 1, 1 - _MISS / 2 / among))


def summarise_table(measures: pa.Table) -> pa.Table:
    """The table `measures` to `scores`, sorted, without the column `series`, which the experiment defines."""
    return _summarise_groups(_gather_values(measures))


def summarise_frame(measures: DataFrame) -> DataFrame:
    """The same of a frame, unsorted. Values are gathered before they are shuffled: a row for each score and task."""
    keys = "experiment string, cell string, attack string, metric string, step double"
    gathered = measures.select(*_KEYS, "value").mapInArrow(_gather_batches, f"{keys}, values array<double>")
    return gathered.repartition(*_KEYS).mapInArrow(_summarise_batches, f"{keys}, {_TYPE}")


def _gather_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if parts := list(batches):
        yield from _gather_values(pa.Table.from_batches(parts)).to_batches()


def _summarise_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if parts := list(batches):
        yield from _summarise_groups(pa.Table.from_batches(parts)).to_batches()


def _gather_values(measures: pa.Table) -> pa.Table:
    """One row for each score: its keys, and the list of its values."""
    groups = measures.select([*_KEYS, "value"]).group_by(list(_KEYS)).aggregate([("value", "list")])
    return groups.select([*_KEYS, "value_list"]).rename_columns([*_KEYS, "values"])


def _summarise_groups(groups: pa.Table) -> pa.Table:
    """Groups of equal keys are joined."""
    joined: dict[tuple[str | float, ...], list[float]] = {}
    for *keys, values in zip(*(groups[name].to_pylist() for name in (*_KEYS, "values")), strict=True):
        joined.setdefault(tuple(keys), []).extend(values)
    rows = [(*keys, *summarise(joined[keys])) for keys in sorted(joined)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


_MISS: Final = 0.05
_KEYS: Final = ("experiment", "cell", "attack", "metric", "step")
_TYPE: Final = "value double, spread double, low double, high double, seeds bigint"
_SCHEMA: Final = pa.schema(
    [
        *((key, pa.float64() if key == "step" else pa.string()) for key in _KEYS),
        *((name, pa.int64() if name == "seeds" else pa.float64()) for name in Summary._fields),
    ]
)
