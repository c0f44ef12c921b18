"""Two engines for attacks on tables: Spark, and DuckDB inside one process.

An attack on tables has two parts. Each part is written once:

1. Relations: SQL that reduces observations to what attackers need. Both engines read the same text.
2. A function of one group of rows, mostly of one run: an Arrow table in, rows of `guesses` out.

`SparkEngine` takes frames and spreads both parts over a cluster. `ArrowEngine` takes Arrow tables and does both parts
in this process: a run that is too small for a cluster is attacked inside the task that made it. Tests hold every
relation to the same rows on both engines.

`ArrowEngine` also takes a `Relation`: a query that becomes a part of the queries that read it. So DuckDB reads Parquet
files itself, and of them only the columns and rows that a query needs. Nothing of them is copied into memory before.

Relations stay inside the SQL that both engines read alike. Integers are bigint: a sum of integers is cast to bigint,
and `t_us - t_us % n` rounds a time down, because the engines divide integers differently. Rows have no order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab import tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame


class Relation(NamedTuple):
    """A query of `ArrowEngine` that is not computed yet. Each query that reads it computes what it needs of it."""

    sql: str
    inputs: Mapping[str, pa.Table]
    """The Arrow tables that the text reads, by their names in the text."""


AnyTable: TypeAlias = "DataFrame | pa.Table"
"""A Spark frame or an Arrow table: the caller's choice of the engine. A `Relation` may stand for an Arrow table."""
LocalTable: TypeAlias = pa.Table | Relation


class TablesByKind(NamedTuple):
    """Several Arrow tables of the same runs, kept apart: what one frame with a column `kind` is on Spark."""

    parts: dict[str, pa.Table]
    """Tables with a column `run`, by kind."""


GroupFunction: TypeAlias = Callable[[pa.Table], pa.Table]
PairFunction: TypeAlias = Callable[[pa.Table, pa.Table], pa.Table]
Table = TypeVar("Table")


class TableEngine(Protocol[Table]):
    def query(self, sql: str, /, **inputs: Table) -> Table:
        """The rows of a query; `{name}` in the text stands for the input of that name."""

    def view(self, sql: str, /, **inputs: Table) -> Table:
        """The same, computed by each query that reads it: for renaming and other work that costs next to nothing."""

    def apply_by(self, table: Table, keys: Sequence[str], function: GroupFunction, row: type[msgspec.Struct]) -> Table:
        """Apply a function to all rows with equal keys at once. It returns columns of this row type."""

    def apply_by_pair(
        self, left: Table, right: Table, keys: Sequence[str], function: PairFunction, row: type[msgspec.Struct]
    ) -> Table:
        """The same with the rows of two tables that have equal keys; one of both may have none."""

    def keep(self, table: Table) -> Table:
        """The same rows, computed once however often they are read."""


def engine_of(table: Any) -> TableEngine[Any]:
    """The engine for tables of this kind."""
    return ArrowEngine() if isinstance(table, LocalTable | TablesByKind) else SparkEngine(table.sparkSession)


def scan_files(paths: Sequence[str], columns: Sequence[str], runs: Collection[str] = ()) -> Relation:
    """These columns of Parquet files of this machine; only the rows of these runs, if any are given."""
    files, wanted = (", ".join(f"'{_quote(text)}'" for text in texts) for texts in (paths, runs))
    where = f" WHERE run IN ({wanted})" if runs else ""
    sql = f"SELECT {', '.join(columns)} FROM read_parquet([{files}], hive_partitioning = false){where}"  # noqa: S608
    return Relation(sql, {})


def concat_rows(parts: Sequence[AnyTable]) -> AnyTable:
    """The rows of all these tables, which have the same columns."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts)
    inputs = {f"part{number}": part for number, part in enumerate(parts)}
    sql = " UNION ALL ".join(f"SELECT * FROM {{{name}}}" for name in inputs)  # noqa: S608
    return engine_of(parts[0]).query(sql, **inputs)


class SparkEngine:
    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def query(self, sql: str, /, **inputs: DataFrame) -> DataFrame:
        names = {name: self._name_view(table) for name, table in inputs.items()}
        found: DataFrame = self._spark.sql(sql.format(**names))
        return found

    view = query

    def _name_view(self, table: DataFrame) -> str:
        """The view of a frame: the same one in all queries.

        Spark forgets the persisted rows of a view when the view is dropped, as its own formatting of queries does at
        once. So a view stays until `VIEWS_MAX` others were made after it.
        """
        found = next((name for name, frame in _VIEWS.items() if frame is table), None)
        if found is not None:
            return found
        name = f"input_{uuid4().hex}"
        table.createOrReplaceTempView(name)
        _VIEWS[name] = table
        while len(_VIEWS) > VIEWS_MAX:
            oldest = next(iter(_VIEWS))
            dropped = _VIEWS.pop(oldest)
            if dropped.sparkSession is self._spark:
                self._spark.catalog.dropTempView(oldest)
        return name

    def apply_by(
        self, table: DataFrame, keys: Sequence[str], function: GroupFunction, row: type[msgspec.Struct]
    ) -> DataFrame:
        return table.groupBy(*keys).applyInArrow(function, tables.spark_schema(row))

    def apply_by_pair(
        self, left: DataFrame, right: DataFrame, keys: Sequence[str], function: PairFunction, row: type[msgspec.Struct]
    ) -> DataFrame:
        pairs = left.groupBy(*keys).cogroup(right.groupBy(*keys))
        return pairs.applyInArrow(function, tables.spark_schema(row))

    def keep(self, table: DataFrame) -> DataFrame:
        from veilcast.lab.spark.platform import keep_rows

        return keep_rows(table)


class ArrowEngine:
    def query(self, sql: str, /, **inputs: LocalTable) -> pa.Table:
        database, relation = _database(), self.view(sql, **inputs)
        for name, table in relation.inputs.items():
            database.register(name, table)
        try:
            return database.sql(relation.sql).to_arrow_table()
        finally:
            for name in relation.inputs:
                database.unregister(name)

    def view(self, sql: str, /, **inputs: LocalTable) -> Relation:
        texts, tables = {}, dict[str, pa.Table]()
        for name, table in inputs.items():
            if isinstance(table, Relation):
                texts[name] = f"({table.sql})"
                tables |= table.inputs
            else:
                texts[name] = f"input_{next(_NUMBERS)}"
                tables[texts[name]] = table
        return Relation(sql.format(**texts), tables)

    def apply_by(
        self, table: LocalTable | TablesByKind, keys: Sequence[str], function: GroupFunction, row: type[msgspec.Struct]
    ) -> pa.Table:
        schema = tables.arrow_schema(row)
        if isinstance(table, Relation):
            table = self.query("SELECT * FROM {table}", table=table)
        groups = group_rows(table, keys) if isinstance(table, pa.Table) else _groups_by_kind(table, keys)
        parts = [function(group).select(schema.names).cast(schema) for group in groups]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def apply_by_pair(
        self, left: pa.Table, right: pa.Table, keys: Sequence[str], function: PairFunction, row: type[msgspec.Struct]
    ) -> pa.Table:
        schema = tables.arrow_schema(row)
        grouped = [{_key_of(group, keys): group for group in group_rows(table, keys)} for table in (left, right)]
        every = sorted(grouped[0].keys() | grouped[1].keys())
        empty = left.schema.empty_table(), right.schema.empty_table()
        parts = [function(*(grouped[side].get(key, empty[side]) for side in (0, 1))) for key in every]
        return pa.concat_tables([schema.empty_table(), *(part.select(schema.names).cast(schema) for part in parts)])

    def keep(self, table: pa.Table) -> pa.Table:
        return table


def group_rows(table: pa.Table, keys: Sequence[str]) -> Iterable[pa.Table]:
    """The rows of an Arrow table in groups with equal keys."""
    if not len(table):
        return
    if all(pc.count_distinct(table[key]).as_py() == 1 for key in keys):
        yield table
        return
    ordered = table.sort_by([(key, "ascending") for key in keys]).combine_chunks()
    changes = [pc.run_end_encode(ordered[key].combine_chunks()).run_ends.to_pylist() for key in keys]
    first = 0
    for end in sorted({end for ends in changes for end in ends}):
        yield ordered.slice(first, end - first)
        first = end


def _groups_by_kind(tables: TablesByKind, keys: Sequence[str]) -> Iterable[TablesByKind]:
    found: dict[tuple[object, ...], dict[str, pa.Table]] = {}
    for kind, table in tables.parts.items():
        for group in group_rows(table, keys):
            found.setdefault(_key_of(group, keys), {})[kind] = group
    for key in sorted(found):
        yield TablesByKind(found[key])


def _quote(text: str) -> str:
    return text.replace("'", "''")


def _key_of(group: pa.Table, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(group[key][0].as_py() for key in keys)


@cache
def _database() -> DuckDBPyConnection:
    """One connection for each process: to open one takes longer than most queries."""
    import duckdb

    database = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": f"{_MEMORY_MB}MB"})
    # Spark's name for a hash of three columns; only whether two hashes are equal means anything.
    database.execute("CREATE MACRO xxhash64(a, b, c) AS cast(hash(a, b, c) // 2 AS bigint)")
    return database


_NUMBERS: Final = count()
"""Names of inputs are never used twice: a relation can outlive many queries."""
VIEWS_MAX: Final = 256
"""Views of a process: a name and a plan each."""
_VIEWS: Final[dict[str, Any]] = {}
"""Frames by the names of their views, the oldest first."""
_MEMORY_MB: Final = 4_096
"""Memory of a query in this process, in megabytes; larger ones use the disk."""
