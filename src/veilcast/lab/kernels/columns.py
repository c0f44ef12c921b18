"""Filters as columns of a block of bits, and many publications against all of them: the relay's matching in bulk.

A block has 2^17 columns, one for each subscription; a row of it is 16 kB, and what one publication asks for is as many
rows as it has tags, times the hashes of a filter: little enough to stay near the processor while the next publication
is looked up. Publications come sorted by their tags, the prefixes of a value from the shortest on: those that begin
with the same tags share what these have found. Tags are random already, and only spread over the slices of a filter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.chance import GOLDEN, mixed
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.ledger import Numbers
from veilcast.topics.bloom import Geometry

Bits = NDArray[np.uint64]


def filled(tags: Numbers, offsets: Numbers, shape: Geometry) -> Bits:
    """The filters of subscriptions, of which number n has the tags from offsets[n] to offsets[n + 1]."""
    bits = np.zeros((shape.rows, (len(offsets) + 62) // 64), np.uint64)
    _fill(bits, tags, offsets, shape.hashes, shape.width)
    return bits


def matches(bits: Bits, asked: Numbers, shape: Geometry) -> tuple[Numbers, Numbers]:
    """Which publications, rows of tags, might be wanted by which columns; in the order of publications."""
    room = max(1024, 16 * len(asked))
    while True:
        publication, column = np.empty(room, np.int64), np.empty(room, np.int64)
        found = _match(bits, asked, shape.hashes, shape.width, publication, column)
        if found <= room:
            return publication[:found], column[:found]
        room = found


@compiled
def _place(tag: np.int64, number: int, width: int) -> int:
    """Where in a slice of this number a tag falls: 32 of its bits, mixed anew, scaled to the width."""
    word = mixed(np.uint64(tag) + np.uint64(number + 1) * GOLDEN) >> _32
    return np.int64(np.uint64(number) * np.uint64(width) + (word * np.uint64(width) >> _32))  # type: ignore[return-value]


@compiled
def _fill(bits: Bits, tags: Numbers, offsets: Numbers, hashes: int, width: int) -> None:
    for column in range(offsets.size - 1):
        bit = np.uint64(1) << np.uint64(column & 63)
        for at in range(offsets[column], offsets[column + 1]):
            for number in range(hashes):
                bits[_place(tags[at], number, width), column >> 6] |= bit


@compiled
def _match(bits: Bits, asked: Numbers, hashes: int, width: int, publication: Numbers, column: Numbers) -> int:
    """How many there are; what has no room is counted only."""
    words = bits.shape[1]
    hit = np.zeros((asked.shape[1] + 1, words), np.uint64)
    found = np.zeros(words, np.uint64)
    count = 0
    for row in range(asked.shape[0]):
        first = 0
        while row and first < asked.shape[1] and asked[row, first] == asked[row - 1, first]:
            first += 1
        for query in range(first, asked.shape[1]):
            found[:] = bits[_place(asked[row, query], 0, width)]
            for number in range(1, hashes):
                found &= bits[_place(asked[row, query], number, width)]
            hit[query + 1] = hit[query] | found
        for word in range(words):
            left = hit[asked.shape[1], word]
            bit = word << 6
            while left:
                if left & _1:
                    if count < publication.size:
                        publication[count], column[count] = row, bit
                    count += 1
                left >>= _1
                bit += 1
    return count


BLOCK: Final = 1 << 17
"""Columns."""
_1: Final = np.uint64(1)
_32: Final = np.uint64(32)
