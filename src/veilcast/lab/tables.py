"""Every table of the lab, once: a row type each, from which the Arrow and the Spark schema follow.

`veilcast.observe` defines the tables of what a network shows, because the core writes them. This module defines the
tables that the lab itself makes. They are Parquet files in a location,
`TABLE/experiment=NAME/[bucket=K/]*.parquet`: the experiment is in the path and not in the file, as Spark, pyarrow and
others expect it. Which files count is what a manifest says, so readers are given their names. A reader gets the columns
that are defined here, in their order, or an error that names the wrong one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from veilcast import observe
from veilcast.errors import StorageError, TamperedError
from veilcast.lab.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_ALL_ROWS: Final[Mapping[str, Collection[str]]] = {}


class GuessRow(observe.ObservationRow, frozen=True, gc=False):
    """How strongly an attack believes that a node has a role."""

    attack: str
    epochs: int
    coalition: int
    topic: str
    role: str
    node: str
    score: float


class StreamRow(observe.ObservationRow, frozen=True, gc=False):
    """One candidate of a foiled value, as a broker sees it."""

    stream: int
    step: int
    slot: int
    value: float


class StreamGuessRow(observe.ObservationRow, frozen=True, gc=False):
    """The probability that an attack gives a candidate to be true."""

    attack: str
    stream: int
    step: int
    slot: int
    score: float


class StreamTruthRow(observe.ObservationRow, frozen=True, gc=False):
    """The slot of the truth in a step of a foiled stream. Only `lab/measure` reads it."""

    stream: int
    step: int
    slot: int
    day: int
    """The day that the stream is of. Streams of one day are alike, and count as one where days are drawn."""


class KnowledgeRow(observe.ObservationRow, frozen=True, gc=False):
    """A public number about a place of a foiled stream; the stream is -1 for a number about all of them."""

    name: str
    stream: int
    step: int
    slot: int
    value: float


class MeasureRow(msgspec.Struct, frozen=True, gc=False):
    """One number of one run."""

    experiment: str
    cell: str
    seed: int
    attack: str
    metric: str
    step: float
    value: float


class ScoreRow(msgspec.Struct, frozen=True, gc=False):
    """The same number over all seeds: its mean, its standard deviation, and the 95 % interval of the mean; with one
    seed the last two are infinite."""

    experiment: str
    cell: str
    series: str
    attack: str
    metric: str
    step: float
    value: float
    spread: float
    low: float
    high: float
    seeds: int


class Relation(msgspec.Struct, frozen=True, gc=False):
    """Trace: an acquaintance of a user."""

    user: int
    friend: int


class Interaction(msgspec.Struct, frozen=True, gc=False):
    """Trace: a sender, a receiver and a time in hours since the beginning."""

    publisher: int
    subscriber: int
    hour: float


class Replayed(msgspec.Struct, frozen=True, gc=False):
    """Number of interactions from one broker to another, if users are placed by Zipf's law with alpha."""

    alpha: float
    source: int
    target: int
    interactions: int


class VerdictRow(msgspec.Struct, frozen=True, gc=False):
    """A stated number beside ours."""

    experiment: str
    engine: str
    kind: str
    """`published`, `earlier` or `check`."""
    what: str
    origin: str
    """The place in a paper, with its words; the earlier run; or the reason for a check."""
    figure: str
    curve: str
    x: float | None
    statistic: str
    stated: float
    reproduced: float
    low: float
    high: float
    within: float
    difference: float
    """Ours minus the stated number."""
    verdict: str
    expected: str
    why: str


@cache
def arrow_schema(row: type[msgspec.Struct], *, stored: bool = False) -> pa.Schema:
    """The schema of the whole table; `stored` leaves out the columns that the path of a file holds."""
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable in _columns(row, stored)])


def spark_schema(row: type[msgspec.Struct], *, stored: bool = False) -> StructType:
    """The same for Spark."""
    from pyspark.sql import types

    kinds: dict[pa.DataType, types.DataType] = {
        pa.string(): types.StringType(),
        pa.int64(): types.LongType(),
        pa.float64(): types.DoubleType(),
        pa.bool_(): types.BooleanType(),
        pa.binary(): types.BinaryType(),
    }
    fields = [types.StructField(name, kinds[kind], nullable) for name, kind, nullable in _columns(row, stored)]
    return types.StructType(fields)


def place(row: type[msgspec.Struct], experiment: str, bucket: int | None = None) -> str:
    """The directory of an experiment's part of a table, below the location."""
    base = f"{TABLE_OF[row]}/experiment={experiment}"
    return base if bucket is None else f"{base}/bucket={bucket}"


def from_rows(row: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> pa.Table:
    schema = arrow_schema(row)
    columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=False)]
    return pa.table(arrays, schema=schema) if arrays else schema.empty_table()


def from_columns(table: str, /, **columns: Any) -> pa.Table:
    """A table of this name. A column is an array, or one value for all rows; one of them at least is an array."""
    schema = arrow_schema(TABLES[table])
    arrays = {name: column for name, column in columns.items() if not isinstance(column, str | bytes | int | float)}
    rows = len(next(iter(arrays.values())))
    return pa.table(
        [
            pa.array(arrays[field.name], field.type)
            if field.name in arrays
            else pa.repeat(pa.scalar(columns[field.name], field.type), rows)
            for field in schema
        ],
        schema=schema,
    )


def name_numbers(letter: str, count: int) -> pa.Array:
    """Names that sort as their numbers do."""
    width = len(str(max(0, count - 1)))
    return pa.array([f"{letter}{number:0{width}d}" for number in range(count)], pa.string())


def write(location: Location, name: str, table: pa.Table) -> str:
    """Write a new file, without the columns that its path holds. Returns its digest; equal rows give equal bytes."""
    kept = table.drop_columns([column for column in table.column_names if column in _IN_PATH])
    packed = pa.BufferOutputStream()
    pq.write_table(kept, packed, compression="zstd")
    data = packed.getvalue()
    with location.open_new(name) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def read(
    location: Location,
    row: type[msgspec.Struct],
    experiment: str,
    files: Iterable[str],
    *,
    where: Mapping[str, Collection[str]] = _ALL_ROWS,
) -> pa.Table:
    """The rows of files of an experiment's table, in the order of the files' names. `where` names the values that
    columns must have."""
    parts = [_read_file(location, name, row, experiment, where) for name in sorted(files)]
    return pa.concat_tables(parts) if parts else arrow_schema(row).empty_table()


def frame(
    spark: SparkSession, location: Location, row: type[msgspec.Struct], experiment: str, files: Iterable[str]
) -> DataFrame:
    """The same as a Spark frame; only the files' footers are read here."""
    from pyspark.sql import functions as sql

    schema = spark_schema(row)
    names = sorted(files)
    for name in names:
        check(location, name, row)
    if not names:
        return spark.createDataFrame([], schema)
    # Spark takes a path literally, except characters that it reads as a pattern.
    places = [_PATTERN.sub(r"\\\g<0>", location.uri_of(name)) for name in names]
    rows = spark.read.schema(spark_schema(row, stored=True)).parquet(*places)
    return rows.withColumn("experiment", sql.lit(experiment)).select(*schema.fieldNames())


def make_frame(spark: SparkSession, table: pa.Table, row: type[msgspec.Struct] | None = None) -> DataFrame:
    """A Spark frame with all rows of an Arrow table; with the types of this table's row, if it is given.

    Spark reads a partition up to its first empty batch, and drops what comes after. So empty batches are left out.
    """
    filled = pa.Table.from_batches([batch for batch in table.to_batches() if len(batch)], table.schema)
    return spark.createDataFrame(filled) if row is None else spark.createDataFrame(filled, spark_schema(row))


def check(location: Location, name: str, row: type[msgspec.Struct]) -> bool:
    """Raise `TamperedError`, naming the column, unless this is a file of that table. Returns whether the file's schema
    alone shows that every column has a value where it must; otherwise only reading shows it."""
    path = location.path_of(name)
    try:
        with location.open_file(name) as file:
            found = pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, row, error) from error
    _check_schema(path, row, found)
    return not any(found.field(field.name).nullable and not field.nullable for field in arrow_schema(row, stored=True))


def _check_schema(path: str, row: type[msgspec.Struct], found: pa.Schema) -> None:
    wanted = arrow_schema(row, stored=True)
    for field in wanted:
        if field.name not in found.names:
            raise TamperedError(f"{path} is no file of {TABLE_OF[row]}: it has no column {field.name}")
        if (kind := found.field(field.name).type) != field.type:
            raise TamperedError(
                f"{path} is no file of {TABLE_OF[row]}: column {field.name} holds {kind}, not {field.type}"
            )
    for name in found.names:
        if name not in wanted.names:
            raise TamperedError(f"{path} is no file of {TABLE_OF[row]}: it has a column {name}, which is not of it")


def _read_file(
    location: Location, name: str, row: type[msgspec.Struct], experiment: str, where: Mapping[str, Collection[str]]
) -> pa.Table:
    check(location, name, row)
    path, schema = location.path_of(name), arrow_schema(row)
    try:
        chosen = [(column, "in", list(values)) for column, values in where.items()]
        with location.open_file(name) as file:
            table = pq.read_table(file, partitioning=None, filters=chosen or None)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, row, error) from error
    for field in arrow_schema(row, stored=True):
        if table[field.name].null_count and not field.nullable:
            raise TamperedError(f"{path} is no file of {TABLE_OF[row]}: column {field.name} has rows without a value")
    named = pa.repeat(pa.scalar(experiment), len(table))
    return pa.table([named if name in _IN_PATH else table[name] for name in schema.names], schema=schema)


def _unreadable(path: str, row: type[msgspec.Struct], error: Exception) -> StorageError | TamperedError:
    if isinstance(error, OSError) and error.errno:
        return StorageError(f"cannot read {path}: {os.strerror(error.errno)}")
    return TamperedError(f"{path} is no file of {TABLE_OF[row]}: it is no whole Parquet file")


def _columns(row: type[msgspec.Struct], stored: bool) -> list[tuple[str, pa.DataType, bool]]:
    fields = msgspec.structs.fields(row)
    return [(field.name, *_kind(field.type)) for field in fields if not (stored and field.name in _IN_PATH)]


def _kind(annotation: Any) -> tuple[pa.DataType, bool]:
    choices = get_args(annotation)
    plain = next((choice for choice in choices if choice is not NoneType), annotation)
    return _ARROW[plain], NoneType in choices


_ARROW: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}
_PATTERN: Final = re.compile(r"[][*?{}\\]")
_IN_PATH: Final = ("experiment",)
"""Columns that are in the path of a file, not in the file."""

TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    **observe.TABLES,
    "guesses": GuessRow,
    "streams": StreamRow,
    "stream_guesses": StreamGuessRow,
    "stream_truth": StreamTruthRow,
    "stream_knowledge": KnowledgeRow,
    "measures": MeasureRow,
    "scores": ScoreRow,
    "verdicts": VerdictRow,
    "relations": Relation,
    "interactions": Interaction,
    "replayed": Replayed,
}
OBSERVATIONS: Final = tuple(name for name, row in TABLES.items() if issubclass(row, observe.ObservationRow))
"""The tables that a run can give: what an adversary saw, what it guesses, and what is true."""
TABLE_OF: Final[dict[type[msgspec.Struct], str]] = {row: name for name, row in TABLES.items()}
