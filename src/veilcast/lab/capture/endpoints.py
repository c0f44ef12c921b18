"""The two ends of packets as text, as the taps of nodes write them: "192.0.2.1:4000", "[2001:db8::1]:4000".

Millions of packets have few ends. An open-addressing table numbers them, and each text is made once. A capture does not
know the zone of a link-local address, so the text has none.
"""

from __future__ import annotations

import socket
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.capture.layout import Column, Word
from veilcast.lab.models.numba_cache import jit


def name_endpoints(ends: NDArray[np.uint64]) -> tuple[pa.StringArray, pa.StringArray]:
    """The sources and the destinations of rows of six words, as in `packets.Dissected`."""
    every = ends.reshape(-1, 3)
    numbers, firsts = _number(every)
    names = pa.array([_text(*row) for row in every[firsts].tolist()], pa.string())
    return names.take(pa.array(numbers[0::2])), names.take(pa.array(numbers[1::2]))


def number_links(ends: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """For rows of two ends: a number of the pair, equal for both directions, and whether it goes from the lower to the
    higher end."""
    words = ends.reshape(-1, 2, 3) * _ODD
    source, destination = np.bitwise_xor.reduce(words, axis=2).T * _ODD[0]
    return source ^ destination, source < destination


def are_between(rows: NDArray[np.uint64], nodes: frozenset[str]) -> NDArray[np.bool_]:
    """Mask of the rows with both ends among these nodes."""
    names = pa.array(sorted(nodes), pa.string())
    source, destination = name_endpoints(rows)
    both: NDArray[np.bool_] = pc.and_(pc.is_in(source, names), pc.is_in(destination, names)).to_numpy(
        zero_copy_only=False
    )
    return both


def _text(high: int, low: int, port: int) -> str:
    if port >> 16 == 4:
        return f"{socket.inet_ntop(socket.AF_INET, low.to_bytes(4, 'big'))}:{port & 0xFFFF}"
    return f"[{socket.inet_ntop(socket.AF_INET6, (high << 64 | low).to_bytes(16, 'big'))}]:{port & 0xFFFF}"


@jit
def _number(ends: NDArray[np.uint64]) -> tuple[NDArray[np.int32], Column]:
    """A number for each row, equal for equal rows; and by number, its first row."""
    slots, count = np.full(1024, -1, np.int64), 0
    numbers, firsts = np.empty(len(ends), np.int32), np.empty(1024, np.int64)
    for row in range(len(ends)):
        slot = _find(slots, firsts, ends, row)
        if slots[slot] < 0:
            if count == len(firsts):
                grown = np.empty(2 * count, np.int64)
                grown[:count] = firsts
                firsts = grown
            firsts[count] = row
            slots[slot] = count
            count += 1
            if 2 * count > len(slots):
                slots = np.full(4 * len(slots), -1, np.int64)
                for known in range(count):
                    slots[_find(slots, firsts, ends, firsts[known])] = known
                slot = _find(slots, firsts, ends, row)
        numbers[row] = slots[slot]
    return numbers, firsts[:count]


@jit
def _find(slots: Column, firsts: Column, ends: NDArray[np.uint64], row: Word) -> Word:
    """The slot of this row, whether used or free."""
    high, low, port = ends[row, 0], ends[row, 1], ends[row, 2]
    mixed = (high * np.uint64(0x9E3779B97F4A7C15) ^ low) * np.uint64(0xBF58476D1CE4E5B9) ^ port
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    mask = np.uint64(len(slots) - 1)
    slot = np.int64((mixed ^ (mixed >> np.uint64(29))) & mask)
    while slots[slot] >= 0:
        first = firsts[slots[slot]]
        if ends[first, 0] == high and ends[first, 1] == low and ends[first, 2] == port:
            break
        slot = (slot + 1) & np.int64(mask)
    return slot


_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
