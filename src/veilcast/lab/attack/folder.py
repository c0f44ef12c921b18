"""A folder: all that was gathered of a run, of different kinds, in one frame; so one shuffle brings it to one task.

Each kind is a sheet. What a sheet's columns are called where it was gathered, and which of the few columns of a folder
they lie in, is told when it is put in; a task takes the sheets out again as arrays. Nodes become numbers, in the order
of their names over all sheets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sheet(NamedTuple):
    kind: str
    frame: DataFrame
    """With a column `run`."""
    columns: dict[str, str]
    """Which column of the folder holds which of the frame."""


def filed(sheets: Iterable[Sheet]) -> DataFrame:
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


class Folder:
    """Of one run."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._names = distinct([rows[name] for name in ("u", "v", "w")])
        self.run: str = rows["run"][0].as_py()
        self.names: list[str] = self._names.to_pylist()

    def sheet(self, kind: str, word: str | None = None) -> pa.Table:
        """All rows of a kind; of one word only, if there is one."""
        found = self._rows.filter(pc.equal(self._rows["kind"], kind))
        return found if word is None else found.filter(pc.equal(found["word"], word))

    def nodes(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        return np.asarray(pc.index_in(column, self._names).to_numpy(), np.int32)


def distinct(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
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
