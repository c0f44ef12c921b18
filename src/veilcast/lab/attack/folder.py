"""A folder: all that was gathered of a run, of different kinds, in one frame; so one shuffle brings it to one task.

Its columns mean something else for each kind of row, and that is known here alone: here the frames are put in, and here
a task takes them out again, as arrays. Names become numbers, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.cadence import Tally
from veilcast.lab.attack.record import Record, Rounds
from veilcast.lab.kernels.graph import from_edges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Opened(NamedTuple):
    names: list[str]
    """Of the nodes."""
    topics: list[str]
    """One without a name where nothing is known of them."""
    record: Record


def filed(
    links: DataFrame,
    there: DataFrame,
    notes: DataFrame | None = None,
    activity: DataFrame | None = None,
    tally: DataFrame | None = None,
    published: DataFrame | None = None,
) -> DataFrame:
    """What there is, of all runs; the columns of each frame are those of `gathering`, `topology` and so on."""
    from pyspark.sql import functions as sql

    def put(kind: int, frame: DataFrame | None, **columns: str) -> None:
        if frame is not None:
            rest = [sql.expr(columns.get(name, absent)).alias(name) for name, absent in _COLUMNS.items()]
            parts.append(frame.select("run", sql.lit(kind).cast("tinyint").alias("kind"), *rest))

    parts: list[DataFrame] = []
    put(_LINK, links, u="u", v="v")
    put(_THERE, there, at="epoch", u="node")
    put(_NOTE, notes, at="t_us", u="src", v="dst", number="epoch")
    put(_ACTIVITY, activity, at="round", u="node", number="bytes")
    put(_TALLY, tally, at="gap", u="src", v="dst", number="size", count="cells")
    put(_PUBLISHED, published, at="t_us", u="topic")
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def opened(rows: pa.Table, round_us: int) -> Opened:
    """The folder of one run."""
    kinds = rows["kind"].to_numpy()
    links, there, notes, activity, tally, published = (
        rows.filter(pa.array(kinds == kind)) for kind in (_LINK, _THERE, _NOTE, _ACTIVITY, _TALLY, _PUBLISHED)
    )
    nodes = [part[end] for part in (links, there, notes, activity, tally) for end in ("u", "v")]
    names, topics = _sorted(nodes), _sorted([published["u"]])

    def places(column: pa.ChunkedArray) -> NDArray[np.int32]:
        return np.asarray(pc.index_in(column, names).to_numpy(), np.int32)

    epochs = np.union1d(there["at"].to_numpy(), notes["number"].to_numpy())
    present = np.zeros((len(epochs), len(names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), places(there["u"])] = True
    # Of copies at the same time the order is any, but always the same.
    notes = notes.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    record = Record(
        graph=from_edges(len(names), places(links["u"]), places(links["v"])),
        present=present,
        src=places(notes["u"]),
        dst=places(notes["v"]),
        at=notes["at"].to_numpy(),
        epoch=np.searchsorted(epochs, notes["number"].to_numpy()),
        rounds=_rounds(
            round_us, activity["at"].to_numpy(), places(activity["u"]), activity["number"].to_numpy(), len(names)
        ),
        published=published["at"].to_numpy(),
        topic=pc.index_in(published["u"], topics).to_numpy().astype(np.int64),
        cadence=Tally(places(tally["u"]), places(tally["v"]), *(tally[name].to_numpy() for name in _OF_TALLY)),
    )
    return Opened(names.to_pylist(), topics.to_pylist() or [""], record)


def _rounds(
    length_us: int, number: NDArray[np.int64], node: NDArray[np.int32], amount: NDArray[np.int64], nodes: int
) -> Rounds:
    first = int(number.min()) if len(number) else 0
    activity = np.zeros((int(number.max(initial=first - 1)) + 1 - first, nodes))
    activity[number - first, node] = amount
    return Rounds(length_us, first, activity)


def _sorted(columns: list[pa.ChunkedArray]) -> pa.Array:
    """What stands in any of them, once."""
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    return pc.unique(every).drop_null().sort()


_LINK: Final = 0
_THERE: Final = 1
_NOTE: Final = 2
_ACTIVITY: Final = 3
_TALLY: Final = 4
_PUBLISHED: Final = 5
_OF_TALLY: Final = ("at", "number", "count")
_COLUMNS: Final = {
    "at": "0L",
    "u": "cast(null as string)",
    "v": "cast(null as string)",
    "number": "0L",
    "count": "0L",
}
"""And what stands there where a kind of rows has no use for it."""
