"""Bulk matching for a relay: filters as columns of a block of bits, and many publications against all of them.

A block has 2^17 columns, one for each subscription, and a row is 16 kB. Publications are sorted by their tags, the
prefixes of a value from the shortest on: a tag that neighbours share is looked up once for all of them. Tags are random
already, and are only spread over the slices of a filter.

The cost of a look-up is the bytes that it reads. Two measures reduce it:

1. Slices are sparse. The conjunction of six slices leaves hardly a bit that does not match, and the other slices are
   read only there.
2. A block is cut into tiles, and a batch of tags goes through one tile before the next, so that bytes are in the cache.
   The rows of a tile that are read for every tag take three quarters of a megabyte. They are contiguous: rows of a
   whole block, a power of two apart, would compete for the same few cache lines. That alone cost a factor of three.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import GOLDEN, mix_bits
from veilcast.lab.models.server_log import Numbers
from veilcast.topics.bloom import Geometry

Bits = NDArray[np.uint64]


def fill_filters(tags: Numbers, offsets: Numbers, shape: Geometry) -> Bits:
    """The filters of subscriptions, by tile, row and word. Subscription n has the tags from offsets[n] to offsets[n +
    1]."""
    bits = np.zeros((-(-(len(offsets) - 1) // _TILE), shape.rows, _TILE // 64), np.uint64)
    _fill(bits, tags, offsets, shape.hashes, shape.width)
    return bits


def match_filters(bits: Bits, asked: Numbers, shape: Geometry) -> tuple[Numbers, Numbers]:
    """Pairs of a publication (a row of tags) and a column that may want it, in the order of both."""
    columns = len(bits) * _TILE
    found = [np.empty(0, np.int64)]
    for first in range(0, len(asked), _AT_ONCE):
        publication, column = _of_some(bits, asked[first : first + _AT_ONCE], shape)
        # As one number, because several tags of a publication can be in the same column.
        found.append(np.unique((first + publication) * columns + column))
    publication, column = np.divmod(np.concatenate(found), columns)
    return publication, column


def _of_some(bits: Bits, asked: Numbers, shape: Geometry) -> tuple[Numbers, Numbers]:
    """Pairs in any order, possibly repeated. A tag is looked up once for a run of publications that have it."""
    tags = asked.T
    begins = np.ones(tags.shape, bool)
    begins[:, 1:] = tags[:, 1:] != tags[:, :-1]
    runs = np.flatnonzero(begins)
    lengths = np.diff(runs, append=begins.size)
    run, column = _of_tags(bits, tags[begins], shape)
    times = lengths[run]
    within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(runs[run] % len(asked), times) + within, np.repeat(column, times)


def _of_tags(bits: Bits, tags: Numbers, shape: Geometry) -> tuple[Numbers, Numbers]:
    room = max(1024, 2 * len(tags))
    while True:
        place, column = np.empty(room, np.int64), np.empty(room, np.int64)
        found = _look_up(bits, tags, shape.hashes, shape.width, place, column)
        if found <= room:
            return place[:found], column[:found]
        room = found


@jit
def _place(tag: np.int64, number: int, width: int) -> int:
    """The place of a tag in a slice: 32 of its bits, mixed for this slice and scaled to the width."""
    word = mix_bits(np.uint64(tag) + np.uint64(number + 1) * GOLDEN) >> _32
    return np.int64(np.uint64(number) * np.uint64(width) + (word * np.uint64(width) >> _32))  # type: ignore[return-value]


@jit
def _fill(bits: Bits, tags: Numbers, offsets: Numbers, hashes: int, width: int) -> None:
    for column in range(offsets.size - 1):
        tile, word, bit = column // _TILE, column % _TILE >> 6, np.uint64(1) << np.uint64(column & 63)
        for at in range(offsets[column], offsets[column + 1]):
            for number in range(hashes):
                bits[tile, _place(tags[at], number, width), word] |= bit


@jit
def _look_up(bits: Bits, tags: Numbers, hashes: int, width: int, place: Numbers, column: Numbers) -> int:
    """Pairs of tag and column that may match, and their number. Pairs beyond the capacity of the output are only
    counted."""
    rows = np.empty((tags.size, 6), np.int64)
    for at in range(tags.size):
        for number in range(6):
            # With fewer slices, the last one is repeated.
            rows[at, number] = _place(tags[at], min(number, hashes - 1), width)
    count = 0
    for start in range(bits.shape[0]):
        tile = bits[start]
        for at in range(tags.size):
            a, b, c = tile[rows[at, 0]], tile[rows[at, 1]], tile[rows[at, 2]]
            d, e, f = tile[rows[at, 3]], tile[rows[at, 4]], tile[rows[at, 5]]
            some = np.uint64(0)
            for word in range(tile.shape[1]):
                some |= a[word] & b[word] & c[word] & d[word] & e[word] & f[word]
            if not some:
                continue
            for word in range(tile.shape[1]):
                left = a[word] & b[word] & c[word] & d[word] & e[word] & f[word]
                number = 6
                while left and number < hashes:
                    left &= tile[_place(tags[at], number, width), word]
                    number += 1
                bit = start * _TILE + (word << 6)
                while left:
                    if left & _1:
                        if count < place.size:
                            place[count], column[count] = at, bit
                        count += 1
                    left >>= _1
                    bit += 1
    return count


BLOCK_COLUMNS: Final = 1 << 17
_TILE: Final = 1 << 13
"""Columns of a tile."""
_AT_ONCE: Final = 1 << 12
"""Publications of a batch."""
_1: Final = np.uint64(1)
_32: Final = np.uint64(32)
