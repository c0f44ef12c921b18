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

from veilcast.lab import tables
from veilcast.lab.attack.table_engine import AnyTable, engine_of
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


class RunTable(NamedTuple):
    kind: str
    table: AnyTable
    """A table with a column `run`."""
    columns: dict[str, str]
    """SQL expression over the table, by column of the common table."""


def union_tables(tables: Iterable[RunTable]) -> AnyTable:
    """One table of all tables, of all runs."""
    parts, inputs = [], {}
    for number, (kind, table, columns) in enumerate(tables):
        rest = [f"{columns.get(name, absent)} AS {name}" for name, absent in _COLUMNS.items()]
        parts.append(f"SELECT run, '{kind}' AS kind, {', '.join(rest)} FROM {{table{number}}}")  # noqa: S608
        inputs[f"table{number}"] = table
    return engine_of(inputs["table0"]).query(" UNION ALL ".join(parts), **inputs)


class GroupedRun:
    """All tables of one run, inside a task."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._names = distinct_values([rows[name] for name in ("u", "v", "w")])
        self.run: str = rows["run"][0].as_py()
        self.names: list[str] = self._names.to_pylist()

    def table(self, kind: str, word: str | None = None) -> pa.Table:
        """All rows of a kind; only those with this `word`, if one is given."""
        found = self._rows.filter(pc.equal(self._rows["kind"], kind))
        return found if word is None else found.filter(pc.equal(found["word"], word))

    def node_numbers(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        return np.asarray(pc.index_in(column, self._names).to_numpy(), np.int32)


def distinct_values(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """The distinct values of these columns, in order."""
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    return pc.unique(every).drop_null().sort()


_COLUMNS: Final = {
    **dict.fromkeys(("at", "number"), "cast(0 as bigint)"),
    "share": "cast(0 as double)",
    **dict.fromkeys(("u", "v", "w", "word"), "cast(null as string)"),
    "value": "cast(null as binary)",
}
"""Columns of the common table, with the value for tables that do not use them. `u`, `v` and `w` are nodes, `word` is
any other text."""
