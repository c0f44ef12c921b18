"""The paper's routing table: one Bloom filter for each destination, which holds all elements to be forwarded there.

Pure. A destination is a node that is the parent of this one in some tree. The elements of several subscriptions
(`core.match_elements`: plain, with the topic's name in front) share its filter. A publication goes to every destination
whose filter contains an element of each of its groups. The filter does not record which tree an element came with. That
is P2 to the letter, and the reason why a publication for two subscribers also takes paths that only the other one
installed.

The probability of a false match is at most `geometry.bound` for each destination, as long as no filter holds more
elements than the bound is computed for; a filter refuses more. The bound must be far below one over the number of
destinations: with 499 destinations and 1 %, every visit makes five stray copies, and each of them is forwarded.

P2 has no way to unsubscribe. Without counting, filters only grow, and hold every element ever added. With `counting`,
as the paper proposes, an added element can be removed once. Removing an element that was never added would damage
others, so the table ignores an element that it does not find; a false positive is found, and does damage others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.errors import LocalError
from veilcast.topics import PUBLIC_KEY, Geometry

Counts: TypeAlias = npt.NDArray[np.uint16]


class DestinationFilters:
    """At most `destinations` filters of this geometry."""

    def __init__(self, geometry: Geometry, *, destinations: int, counting: bool = False) -> None:
        if destinations < 1:
            raise LocalError("a routing table has room for at least one destination")
        self.geometry: Final = geometry
        self._destinations_max = destinations
        self._counting = counting
        self._columns: dict[bytes, int] = {}
        self._element_counts: list[int] = []
        # One row for each position of a filter, one column for each destination: a look-up reads a few whole rows.
        self._counts: Counts = np.zeros((geometry.rows, 0), dtype=np.uint16)

    def __len__(self) -> int:
        return len(self._columns)

    def add(self, destination: bytes, elements: Iterable[bytes]) -> None:
        """Add all elements or none: `LocalError` if there is no capacity for the destination, or in its filter."""
        rows = self._rows(elements)
        column = self._columns.get(destination)
        new = rows if column is None or self._counting else rows[~self._holds(rows, column)]
        if len(new) + (0 if column is None else self._element_counts[column]) > self.geometry.elements:
            raise LocalError(f"a filter holds at most {self.geometry.elements} elements")
        if column is None:
            column = self._new_column(destination)
        places = new.reshape(-1)
        if self._counting:
            if len(places) and int(self._counts[places, column].max()) > _COUNT_MAX - len(places):
                raise LocalError("a counter of the filter is at its maximum")
            np.add.at(self._counts[:, column], places, 1)
        else:
            self._counts[places, column] = 1
        self._element_counts[column] += len(new)

    def remove(self, destination: bytes, elements: Iterable[bytes]) -> None:
        """Remove each element once; elements that are not found are ignored."""
        if not self._counting:
            raise LocalError("these filters do not count, so nothing can be removed")
        column = self._columns.get(destination)
        if column is None:
            return
        for row in self._rows(elements):
            if self._counts[row, column].all():
                self._counts[row, column] -= 1
                self._element_counts[column] -= 1

    def match(self, groups: Sequence[Sequence[bytes]]) -> list[bytes]:
        """The destinations whose filters contain an element of each group, in order of insertion."""
        if not groups:
            return []
        hit = np.ones(len(self._columns), dtype=np.bool_)
        for group in groups:
            rows = self._rows(group)
            hit &= (self._counts[rows, : len(hit)] > 0).all(axis=1).any(axis=0)
        return [destination for destination, wanted in zip(self._columns, hit.tolist(), strict=True) if wanted]

    def _holds(self, rows: npt.NDArray[np.int64], column: int) -> npt.NDArray[np.bool_]:
        return np.asarray((self._counts[rows, column] > 0).all(axis=1))

    def _rows(self, elements: Iterable[bytes]) -> npt.NDArray[np.int64]:
        return self.geometry.positions(tuple(dict.fromkeys(elements)), PUBLIC_KEY)

    def _new_column(self, destination: bytes) -> int:
        column = len(self._columns)
        if column >= self._destinations_max:
            raise LocalError(f"a routing table has at most {self._destinations_max} destinations")
        if column >= self._counts.shape[1]:
            wider: Counts = np.zeros(
                (self.geometry.rows, min(max(8, 2 * column), self._destinations_max)), dtype=np.uint16
            )
            wider[:, :column] = self._counts
            self._counts = wider
        self._columns[destination] = column
        self._element_counts.append(0)
        return column


_COUNT_MAX: Final = np.iinfo(np.uint16).max
