"""Repetitions in a stream of sets: values that stay, and whole sets that return.

Values are codes, the same number for the same value; sets have codes too. A clock that only advances, over all streams,
tells observations in this stream from those in another, so tables need not be cleared.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import mix_bits

Codes: TypeAlias = NDArray[np.int64]
"""[streams, steps, n]."""


@jit
def run_lengths(codes: Codes, many: int) -> Codes:
    """Number of consecutive steps around this one in which each value is in the set."""
    streams, steps, n = codes.shape
    result = np.ones(codes.shape, np.int64)
    run, last = np.zeros(many, np.int64), np.full(many, -9, np.int64)
    clock = 0
    for stream in range(streams):
        for back in range(2):
            clock += 2
            for at in range(steps):
                step = steps - 1 - at if back else at
                clock += 1
                for slot in range(n):
                    code = codes[stream, step, slot]
                    if last[code] < clock:
                        run[code] = run[code] + 1 if last[code] == clock - 1 else 0
                        last[code] = clock
                    result[stream, step, slot] += run[code]
    return result


@jit
def set_returns(sets: NDArray[np.int64], many: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[streams, steps]: how often this set came before in its stream, and how many steps ago it came first."""
    streams, steps = sets.shape
    count, ago = np.zeros(sets.shape, np.int64), np.zeros(sets.shape, np.int64)
    times, first = np.zeros(many, np.int64), np.zeros(many, np.int64)
    for stream in range(streams):
        for step in range(steps):
            code = sets[stream, step]
            if times[code] == 0:
                first[code] = step
            count[stream, step], ago[stream, step] = times[code], step - first[code]
            times[code] += 1
    return count, ago


@jit
def earlier_appearances(codes: Codes, new: NDArray[np.bool_], many: int) -> Codes:
    """Number of different earlier sets of its stream that contain each value; `new` marks the steps with a new set."""
    streams, steps, n = codes.shape
    result = np.zeros(codes.shape, np.int64)
    times, last = np.zeros(many, np.int64), np.full(many, -1, np.int64)
    for stream in range(streams):
        for step in range(steps):
            for slot in range(n):
                code = codes[stream, step, slot]
                if last[code] != stream:
                    last[code], times[code] = stream, 0
                result[stream, step, slot] = times[code]
            if new[stream, step]:
                for slot in range(n):
                    times[codes[stream, step, slot]] += 1
    return result


@jit
def set_fingerprints(codes: Codes) -> NDArray[np.uint64]:
    """[streams, steps]: a number for each set of each stream, independent of the order of its values."""
    streams, steps, n = codes.shape
    result = np.empty((streams, steps), np.uint64)
    for stream in range(streams):
        own = mix_bits(np.uint64(stream + 1))
        for step in range(steps):
            total = np.uint64(0)
            for slot in range(n):
                total += mix_bits(np.uint64(codes[stream, step, slot] + 1) ^ own)
            result[stream, step] = total
    return result
