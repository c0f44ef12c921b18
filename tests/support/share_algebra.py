"""Linear algebra for the theorems: what follows from known rows, over GF(256) or modulo a prime.

A row is a linear form over unknowns: the secret, and all random values. An adversary that knows the values of some
forms knows the values of all forms in their span and, because the random values are uniform, nothing about any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]


def _table() -> Rows:
    """Products in the field of AES, computed bit by bit."""
    table = np.zeros((256, 256), dtype=np.uint8)
    for a in range(256):
        for b in range(256):
            product, factor, rest = 0, a, b
            while rest:
                product ^= factor * (rest & 1)
                factor = factor << 1 ^ (0x11B if factor & 0x80 else 0)
                rest >>= 1
            table[a, b] = product
    return table


TIMES = _table()
INVERSE = np.array([0, *(int(np.flatnonzero(TIMES[a] == 1)[0]) for a in range(1, 256))], dtype=np.uint8)


def is_determined(rows: Rows, target: Rows) -> bool:
    """True if the target is in the span of the rows, over GF(256)."""
    used = rows.any(axis=0)
    if target[~used].any():
        return False
    rows, target = rows[:, used], target[used]
    done = 0
    for column in range(rows.shape[1]):
        found = np.flatnonzero(rows[done:, column])
        if not len(found):
            continue
        pivot = done + int(found[0])
        rows[[done, pivot]] = rows[[pivot, done]]
        head = TIMES[INVERSE[rows[done, column]], rows[done]]
        below = rows[done + 1 :]
        below ^= TIMES[below[:, column][:, None], head[None, :]]
        target ^= TIMES[target[column], head]
        done += 1
        if done == len(rows):
            break
    return not target.any()


def is_determined_modulo(rows: Sequence[Sequence[int]], target: Sequence[int], prime: int) -> bool:
    """True if the target is in the span of the rows, modulo a prime."""
    left, rest = [list(row) for row in rows], list(target)
    for column in range(len(rest)):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            if rest[column]:
                return False
            continue
        left.remove(pivot)
        scale = pow(pivot[column], -1, prime)
        head = [value * scale % prime for value in pivot]
        for row in left:
            if factor := row[column]:
                row[:] = [(a - factor * b) % prime for a, b in zip(row, head, strict=True)]
        if factor := rest[column]:
            rest = [(a - factor * b) % prime for a, b in zip(rest, head, strict=True)]
    return True
