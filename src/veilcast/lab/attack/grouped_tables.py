"""Several tables of a run in one table, so that one shuffle brings all of them to one task.

Each table says which of its columns go into which of the few columns of the common table. A task takes the tables out
again as arrays. Nodes become numbers, in the order of their names over all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import LocalError
from veilcast.lab import tables
from veilcast.lab.attack.table_engine import AnyTable, LocalTable, Relation, TablesByKind, engine_of
from veilcast.lab.tables import GuessRow


def make_guesses(
    run: str,
    attack: str,
    epochs: int,
    coalition: int,
    topic: str,
    role: str,
    names: Sequence[str],
    scores: NDArray[np.float64],
) -> pa.Table:
    """Rows of the table `guesses`: one for each of these nodes."""
    schema = tables.arrow_schema(GuessRow)
    same = (run, attack, epochs, coalition, topic, role)
    columns = [pa.repeat(pa.scalar(value, schema.types[place]), len(names)) for place, value in enumerate(same)]
    return pa.table([*columns, pa.array(names, pa.string()), pa.array(scores, pa.float64())], schema=schema)


def name_scores(
    run: str,
    attack: str,
    role: str,
    epochs: int,
    coalition: int,
    scores: NDArray[np.float64],
    rows: pa.Array,
    columns: pa.Array,
) -> pa.Table:
    """Guesses for the scores of a matrix that are not 0; if all are 0, one that says so. `rows` name the topics, and
    `columns` the nodes."""
    schema = tables.arrow_schema(GuessRow)
    if not scores.size:
        return schema.empty_table()
    if scores.shape != (len(rows), len(columns)):
        wanted = (len(rows), len(columns))
        raise LocalError(f"attacker {attack}: its scores have shape {scores.shape}, and {wanted} were asked for")
    row, column = np.nonzero(scores)
    if not row.size:
        row = column = np.zeros(1, np.int64)
    fixed = {"run": run, "attack": attack, "epochs": epochs, "coalition": coalition, "role": role}
    given = {name: pa.repeat(pa.scalar(value, schema.field(name).type), row.size) for name, value in fixed.items()}
    given |= {"topic": rows.take(pa.array(row)), "node": columns.take(pa.array(column))}
    given["score"] = pa.array(scores[row, column], pa.float64())
    return pa.table([given[name] for name in schema.names], schema=schema)


class RunTable(NamedTuple):
    kind: str
    table: AnyTable
    """A table with a column `run`."""
    columns: dict[str, str]
    """SQL expression over the table, by column of the common table."""


def union_tables(tables: Iterable[RunTable]) -> AnyTable | TablesByKind:
    """One frame of all tables, of all runs. Arrow tables stay apart: nothing has to be moved to bring them together."""
    given = list(tables)
    if isinstance(given[0].table, LocalTable):
        found: dict[str, list[pa.Table]] = {}
        for each in given:
            found.setdefault(each.kind, []).append(_take_columns(each))
        return TablesByKind({kind: pa.concat_tables(parts) for kind, parts in found.items()})
    parts, inputs = [], {}
    for number, (kind, table, columns) in enumerate(given):
        parts.append(f"SELECT run, '{kind}' AS kind, {_select(columns)} FROM {{table{number}}}")  # noqa: S608
        inputs[f"table{number}"] = table
    return engine_of(inputs["table0"]).query(" UNION ALL ".join(parts), **inputs)


class GroupedRun:
    """All tables of one run, inside a task."""

    def __init__(self, rows: pa.Table | TablesByKind) -> None:
        self._parts = rows.parts if isinstance(rows, TablesByKind) else _split_by_kind(rows)
        parts = [part for part in self._parts.values() if len(part)]
        self._names = distinct_values([part[name] for part in parts for name in ("u", "v", "w")])
        self.run: str = parts[0]["run"][0].as_py()
        self.names: list[str] = self._names.to_pylist()

    def table(self, kind: str, word: str | None = None) -> pa.Table:
        """All rows of a kind; only those with this `word`, if one is given."""
        found = self._parts.get(kind, _EMPTY)
        return found if word is None else found.filter(pc.equal(found["word"], word))

    def node_numbers(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        return np.asarray(pc.index_in(column, self._names).to_numpy(), np.int32)


def _select(columns: dict[str, str]) -> str:
    rest = (f"{columns.get(name, f'cast({absent} as {kind})')} AS {name}" for name, (kind, absent) in _COLUMNS.items())
    return ", ".join(rest)


def _take_columns(given: RunTable) -> pa.Table:
    """The common columns of a table. Columns of an Arrow table are not copied."""
    columns = given.columns
    if isinstance(given.table, Relation):
        named = "".join(f", {text} AS {name}" for name, text in columns.items())
        table = engine_of(given.table).query(f"SELECT run{named} FROM {{table}}", table=given.table)  # noqa: S608
        columns = {name: name for name in columns}
    else:
        table = given.table
    computed = {name: text for name, text in columns.items() if text not in table.column_names}
    if computed:
        query = ", ".join(f"{text} AS {name}" for name, text in computed.items())
        extra = engine_of(table).query(f"SELECT {query} FROM {{table}}", table=table)  # noqa: S608
    found = {"run": table["run"]}
    for field in _EMPTY.schema.remove(0):
        if field.name in computed:
            found[field.name] = extra[field.name].cast(field.type)
        elif field.name in columns:
            found[field.name] = table[columns[field.name]].cast(field.type)
        else:
            absent = None if _COLUMNS[field.name][1] == "null" else 0
            found[field.name] = pa.repeat(pa.scalar(absent, field.type), len(table))
    return pa.table(found, schema=_EMPTY.schema)


def _split_by_kind(rows: pa.Table) -> dict[str, pa.Table]:
    encoded = rows["kind"].combine_chunks().dictionary_encode()
    kinds, plain = encoded.dictionary.to_pylist(), rows.drop_columns(["kind"])
    return {kind: plain.filter(pc.equal(encoded.indices, number)) for number, kind in enumerate(kinds)}


def distinct_values(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """The distinct values of these columns, in order."""
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    return pc.unique(every).drop_null().sort()


_COLUMNS: Final = {
    **dict.fromkeys(("at", "number"), ("bigint", "0")),
    "share": ("double", "0"),
    **dict.fromkeys(("u", "v", "w", "word"), ("string", "null")),
    "value": ("binary", "null"),
}
"""Columns of the common table, with their type and the value for tables that do not use them. `u`, `v` and `w` are
nodes, `word` is any other text."""
_ARROW: Final = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary()}
_EMPTY: Final = pa.schema(
    [("run", pa.string()), *((name, _ARROW[kind]) for name, (kind, _) in _COLUMNS.items())]
).empty_table()
