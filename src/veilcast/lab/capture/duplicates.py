"""Duplicates: one packet, seen in several places, is one cell.

Both ends of a link record a packet, and a router where it comes in and where it goes out. A packet is recognised by its
mark, among sightings that follow one another within a short time. Two sightings at the same place are two packets of
the same content. So the first sighting at one place and the first at another are the same packet, then the second ones,
and so on. The number of packets is the largest number of sightings at one place. The earliest sighting stays.

On Spark the rows of a mark come together by a shuffle, and each partition is gone through once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab.capture.layout import Column
from veilcast.lab.models.numba_cache import jit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class DuplicateFilter:
    """Tells which rows stay; rows come in batches, in the order of mark and time."""

    def __init__(self) -> None:
        # The mark and time of the last row; the number of places; and the most sightings that one of them had.
        self._state = np.zeros(4, np.int64)
        self._places = np.zeros((PLACES_MAX, 2), np.int64)

    def keep(self, mark: Column, t_us: Column, point: Column) -> NDArray[np.bool_]:
        kept = np.ones(len(mark), np.bool_)
        _fold(mark, t_us, point, kept, self._state, self._places)
        return kept


def fold_duplicates(table: pa.Table) -> pa.Table:
    """The cells of a table with the columns `mark` and `point`, in time order."""
    mark, t_us, point = (table[name].to_numpy() for name in (MARK, "t_us", POINT))
    order = np.lexsort((point, t_us, mark))
    kept = order[DuplicateFilter().keep(mark[order], t_us[order], point[order])]
    kept = kept[np.argsort(t_us[kept], kind="stable")]
    return table.drop_columns([MARK, POINT]).take(pa.array(kept))


def add_mark_columns(schema: StructType) -> StructType:
    """The schema with the columns that folding needs."""
    return schema.add(MARK, "long", False).add(POINT, "long", False)


def fold_frame(frame: DataFrame) -> DataFrame:
    """The same for a Spark frame, in no order."""
    from pyspark.sql import functions as sql

    # A row without a mark has no duplicate and may go to any partition.
    spread = sql.when(frame[MARK] == 0, frame["t_us"]).otherwise(0)
    together = frame.repartition(frame[MARK], spread).sortWithinPartitions(MARK, "t_us", POINT)
    return together.mapInArrow(_fold_batches, frame.schema).drop(MARK, POINT)


def _fold_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    folder = DuplicateFilter()
    for batch in batches:
        columns = (batch[name].to_numpy() for name in (MARK, "t_us", POINT))
        yield batch.filter(pa.array(folder.keep(*columns)))


@jit
def _fold(
    mark: Column, t_us: Column, point: Column, kept: NDArray[np.bool_], state: Column, places: NDArray[np.int64]
) -> None:
    for i in range(len(mark)):
        if mark[i] == 0:
            continue
        if mark[i] != state[0] or t_us[i] - state[1] > WINDOW_US:
            state[2] = state[3] = 0
        state[0], state[1] = mark[i], t_us[i]
        place = 0
        while place < state[2] and places[place, 0] != point[i]:
            place += 1
        if place == len(places):
            continue
        if place == state[2]:
            places[place, 0], places[place, 1] = point[i], 0
            state[2] += 1
        places[place, 1] += 1
        if places[place, 1] > state[3]:
            state[3] = places[place, 1]
        else:
            kept[i] = False


MARK: Final = "mark"
POINT: Final = "point"
WINDOW_US: Final = 500_000
"""Longest travel time of a packet between two places; after a longer silence a new packet begins."""
PLACES_MAX: Final = 64
"""Largest number of places at which a packet is recognised; sightings at more places stay."""
