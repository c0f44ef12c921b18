"""A folder: all that was gathered of a run, of different kinds, in one frame; so one shuffle brings it to one task.

Each kind is a sheet. What a sheet's columns are called where it was gathered, and which of the few columns of a folder
they lie in, is told when it is put in; a task takes the sheets out again as arrays. Nodes become numbers, in the order
of their names over all sheets.


How an attacker's scores become rows of the table `guesses`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.tables import GuessRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    """A row for each of these nodes."""
    schema = tables.arrow_schema(GuessRow)
    same = (run, attack, epochs, coalition, topic, role)
    columns = [pa.repeat(pa.scalar(value, schema.types[place]), len(names)) for place, value in enumerate(same)]
    return pa.table([*columns, pa.array(names, pa.string()), pa.array(scores, pa.float64())], schema=schema)


class RunTable(NamedTuple):
    kind: str
    frame: DataFrame
    """With a column `run`."""
    columns: dict[str, str]
    """Which column of the folder holds which of the frame."""


def union_tables(sheets: Iterable[RunTable]) -> DataFrame:
    """What there is, of all runs."""
    from pyspark.sql import functions as sql

    parts = []
    for kind, frame, columns in sheets:
        rest = [sql.expr(columns.get(name, absent)).alias(name) for name, absent in _COLUMNS.items()]
        parts.append(frame.select("run", sql.lit(kind).alias("kind"), *rest))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


class GroupedRun:
    """Of one run."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._names = distinct_values([rows[name] for name in ("u", "v", "w")])
        self.run: str = rows["run"][0].as_py()
        self.names: list[str] = self._names.to_pylist()

    def table(self, kind: str, word: str | None = None) -> pa.Table:
        """All rows of a kind; of one word only, if there is one."""
        found = self._rows.filter(pc.equal(self._rows["kind"], kind))
        return found if word is None else found.filter(pc.equal(found["word"], word))

    def node_numbers(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        return np.asarray(pc.index_in(column, self._names).to_numpy(), np.int32)


def distinct_values(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    """What stands in any of them, once, in order."""
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    return pc.unique(every).drop_null().sort()


_COLUMNS: Final = {
    "at": "0L",
    "number": "0L",
    "share": "0D",
    **dict.fromkeys(("u", "v", "w", "word"), "cast(null as string)"),
    "value": "cast(null as binary)",
}
"""And what stands there where a sheet has no use for it: `u`, `v` and `w` are nodes, `word` is any other text."""
