"""The recorder of a run: it takes the observation tables that `lab run --keep` asks for, column by column.

A run function that can give tables takes a recorder as its fourth argument, and `lab/runs/table.py` lists the names of
the tables beside the function (`KEPT_TABLES`). Nothing is built for a table that nobody keeps:

    if recorder.wants("cells"):
        recorder.record("cells", epoch=0, t_us=times, src=sources, dst=destinations, size=1200)

A column is an array or one value for all rows; the column `run` is the recorder's. A table may come in several parts,
which are stored in their order, so a run need not hold all of a large table at once. Measures do not depend on what is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from veilcast.errors import LocalError
from veilcast.lab import tables

TableSink: TypeAlias = Callable[[pa.Table], object]
"""Takes the next part of a table."""


class TableRecorder:
    """Hands the parts of each wanted table of one run to its sink."""

    def __init__(self, run: str, sinks: Mapping[str, TableSink]) -> None:
        self._run = run
        self._sinks = sinks

    def wants(self, table: str) -> bool:
        return table in self._sinks

    def record(self, table: str, **columns: Any) -> None:
        """Store a part of a table. Whole numbers in a column of names become their digits."""
        sink = self._sinks.get(table)
        if sink is None:
            return
        schema = tables.arrow_schema(tables.TABLES[table])
        if set(columns) != set(schema.names) - {"run"}:
            raise LocalError(f"a part of {table} has columns {', '.join(sorted(columns))}, not those of the table")
        lengths = {len(column) for column in columns.values() if _is_array(column)}
        if len(lengths) > 1:
            raise LocalError(f"the columns of a part of {table} have different lengths")
        rows = lengths.pop() if lengths else 1
        given = {"run": self._run, **columns}
        sink(pa.table([_column(given[field.name], field.type, rows) for field in schema], schema=schema))


def record_tables(recorder: TableRecorder, whole: Mapping[str, pa.Table]) -> None:
    """Record whole tables of one run, as far as they are wanted."""
    for name, table in whole.items():
        if recorder.wants(name):
            recorder.record(name, **{column: table[column] for column in table.column_names if column != "run"})


def _is_array(column: Any) -> bool:
    return isinstance(column, (list, tuple, np.ndarray, pa.Array, pa.ChunkedArray))


def _column(given: Any, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    if not _is_array(given):
        return pa.repeat(pa.scalar(given, kind), rows)
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given.cast(kind)
    if isinstance(given, np.ndarray) and given.dtype.kind in "US":
        return pa.array(given.tolist(), kind)
    return pa.array(given).cast(kind) if isinstance(given, np.ndarray) else pa.array(given, kind)


NO_RECORDER: Final = TableRecorder("", {})
"""Wants no table."""
