"""Many runs to one number: the mean over seeds, its spread, and its interval.

The interval is Student's at 95 %: runs are independent, and means of bounded measures over thirty seeds or more are
close to normal. Sums are rounded once, at their end (`math.fsum`), so a summary does not depend on the order in which
values are collected, and is the same in one process and on any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
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
    return _summarise_groups(_gather_values(measures, _KEYS), _KEYS)


def summarise_frame(measures: DataFrame, beside: Sequence[str] = ()) -> DataFrame:
    """The same of a frame, unsorted. Values are gathered before they are shuffled: a row for each score and task.

    `beside` names more columns with texts. Only rows with equal texts are summarised together, and scores keep them.
    """
    keys = (*_KEYS, *beside)
    columns = ", ".join(f"{key} {'double' if key == 'step' else 'string'}" for key in keys)
    gathered = measures.select(*keys, "value").mapInArrow(
        partial(_gather_batches, keys=keys), f"{columns}, values array<double>"
    )
    return gathered.repartition(*keys).mapInArrow(partial(_summarise_batches, keys=keys), f"{columns}, {_TYPE}")


def _gather_batches(batches: Iterator[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if parts := list(batches):
        yield from _gather_values(pa.Table.from_batches(parts), keys).to_batches()


def _summarise_batches(batches: Iterator[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if parts := list(batches):
        yield from _summarise_groups(pa.Table.from_batches(parts), keys).to_batches()


def _gather_values(measures: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row for each score: its keys, and the list of its values."""
    groups = measures.select([*keys, "value"]).group_by(list(keys)).aggregate([("value", "list")])
    return groups.select([*keys, "value_list"]).rename_columns([*keys, "values"])


def _summarise_groups(groups: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Groups of equal keys are joined."""
    joined: dict[tuple[str | float, ...], list[float]] = {}
    for *key, values in zip(*(groups[name].to_pylist() for name in (*keys, "values")), strict=True):
        joined.setdefault(tuple(key), []).extend(values)
    schema = pa.schema([*((key, pa.float64() if key == "step" else pa.string()) for key in keys), *_SUMMARY])
    rows = [(*key, *summarise(joined[key])) for key in sorted(joined)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


_MISS: Final = 0.05
_KEYS: Final = ("experiment", "cell", "attack", "metric", "step")
_TYPE: Final = "value double, spread double, low double, high double, seeds bigint"
_SUMMARY: Final = tuple((name, pa.int64() if name == "seeds" else pa.float64()) for name in Summary._fields)
