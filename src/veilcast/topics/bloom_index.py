"""The bit-sliced Bloom index: which of a million subscriptions might match this publication?

Pure; imports the errors, the columns and the filters. The bits of all filters form one matrix whose rows are bit
positions and whose columns are filters. Looking an element up reads `hashes` whole rows and ANDs them, 64 columns a
word, instead of visiting a million filters; a publication is the OR over its elements. Rows are read whole: cutting
them into blocks for the cache (at one and ten million columns), following only the words that still have a hit, or
sharing lookups between the publications of a batch measured no or little faster.

A column is one constraint, a subscription is one or more columns (`column_allocator`). It matches if each of its
columns does, which is resolved once the columns that hit are known. So a subscription that should not match has at
least one column that should not hit, and passes with a chance of at most `geometry.bound`, however many constraints it
has. Nothing that matches is ever missed.

The caller decides what a subscription stands for: a subscriber's interest, a destination in a routing table, or,
exactly as in P2, everything one subscriber wants in a single column (which mixes its subscriptions; a test shows how).
The number of a subscription that was removed or has expired will be given out again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.errors import ConfigError, LocalError
from veilcast.topics.bloom import PUBLIC_KEY, Geometry
from veilcast.topics.column_allocator import NumberArray, SubscriptionIndex
from veilcast.topics.elements import Cover

Bitmap: TypeAlias = npt.NDArray[np.uint64]
"""One bit a column, 64 columns a little-endian word, the first column in the lowest bit."""


class BloomIndex(SubscriptionIndex):
    """At most `capacity` columns. `key` determines the positions of elements, and is the public key by default."""

    def __init__(self, geometry: Geometry, *, capacity: int, key: bytes = PUBLIC_KEY) -> None:
        super().__init__(capacity)
        if not 1 <= len(key) <= 64:
            raise ConfigError("the key of an index must have 1 to 64 bytes")
        self.geometry = geometry
        self._key = key
        self._bits: Bitmap = np.zeros((geometry.rows, 0), dtype="<u8")

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes + self._columns.nbytes

    def insert_many(self, subscriptions: Sequence[Collection[Cover]], expiry: int) -> NumberArray:
        """Add subscriptions and return their numbers, in the order given. All or none are added.

        Elements that several of them share are hashed once, so large batches are faster than many small ones.
        """
        filters = [cover for covers in subscriptions for cover in covers]
        if not all(subscriptions) or not all(1 <= len(cover) <= self.geometry.elements for cover in filters):
            raise LocalError(f"a subscription needs filters of 1 to {self.geometry.elements} elements each")
        rows = self._rows(filters)
        columns, numbers = self._columns.take([len(covers) for covers in subscriptions], expiry)
        self._grow(_words(self._columns.size))
        self._set_bits(np.repeat(columns, [len(cover) for cover in filters]), rows)
        return numbers

    def match(self, queries: Collection[bytes]) -> NumberArray:
        asked = dict.fromkeys(queries)
        if len(asked) > self.geometry.queries:
            raise LocalError(f"a publication may ask at most {self.geometry.queries} elements here")
        words = _words(self._columns.used)
        hits: Bitmap = np.zeros(words, dtype="<u8")
        scratch: Bitmap = np.empty(words, dtype="<u8")
        for first, *others in self.geometry.positions(asked, self._key).tolist():
            found: Bitmap = self._bits[first, :words]
            for row in others:
                found = np.bitwise_and(found, self._bits[row, :words], out=scratch)
            hits |= found
        columns = np.flatnonzero(np.unpackbits(hits.view(np.uint8), bitorder="little").view(np.bool_))
        return self._columns.subscriptions(columns)

    # --- bits -----------------------------------------------------------------------------------------------

    def _grow(self, words: int) -> None:
        if words > self._bits.shape[1]:
            bits: Bitmap = np.zeros((self.geometry.rows, words), dtype="<u8")
            bits[:, : self._bits.shape[1]] = self._bits
            self._bits = bits

    def _rows(self, filters: Sequence[Cover]) -> NumberArray:
        """The rows of all elements in turn, computed before any column is taken: this may raise."""
        distinct: dict[bytes, int] = {}
        elements = [distinct.setdefault(element, len(distinct)) for cover in filters for element in cover]
        if not all(isinstance(element, bytes) for element in distinct):
            raise LocalError("an element is bytes")
        return self.geometry.positions(distinct, self._key)[elements]

    def _set_bits(self, columns: NumberArray, rows: NumberArray) -> None:
        """Set, in each column, its element's row of each slice."""
        owners = columns[:, np.newaxis]
        words = rows * self._bits.shape[1] + owners // 64
        masks = np.broadcast_to(_bit(owners), words.shape)
        # `at` is the one way to OR several bits into the same word, and is fast in one dimension only.
        np.bitwise_or.at(self._bits.reshape(-1), words.reshape(-1), masks.reshape(-1))

    def _release(self, columns: NumberArray) -> None:
        """Clear columns that belong to no subscription, and free them."""
        self._clear_bits(columns)
        self._columns.free(columns.tolist())

    def _clear_bits(self, columns: NumberArray) -> None:
        words, where = np.unique(columns // 64, return_inverse=True)
        gone = np.zeros(len(words), dtype="<u8")
        np.bitwise_or.at(gone, where, _bit(columns))
        for start in range(0, len(words), _CLEARING):
            some = slice(start, start + _CLEARING)
            self._bits[:, words[some]] &= ~gone[some]


def _words(columns: int) -> int:
    return (columns + 63) // 64


def _bit(columns: NumberArray) -> Bitmap:
    """The bit of each column within its word."""
    return np.left_shift(np.uint64(1), (columns % 64).astype(np.uint64))


_CLEARING: Final = 1024
"""Words of a row that are cleared at once, so that clearing a million columns takes no copy of the index."""
