"""The vectors that a foiler keeps to use again (P3, Scenario III): a bounded queue for each stream, oldest out first.

Pure; a value, as every state of a generator is. A vector is found by its authentic value, or by any of its values: P3
says "can be found in some vector", which is either. Of several that fit, the youngest is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.foil.chance import Chance, Places

Match: TypeAlias = Literal["authentic", "any"]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Past:
    vectors: Places
    """Of [streams, size, n]; -1 where there is none yet."""
    authentic: Places
    """Of [streams, size]: in which slot of each vector the truth was when it was made."""
    pushed: Places
    """Of [streams]: how many vectors have ever been put in."""

    @classmethod
    def empty(cls, streams: int, size: int, n: int) -> Self:
        vectors = np.full((streams, size, n), -1, dtype=np.int64)
        return cls(vectors, np.zeros((streams, size), dtype=np.int64), np.zeros(streams, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.vectors)

    def found(self, values: Places, match: Match, rng: Chance) -> tuple[Flags, Places, Places]:
        """Which streams have a vector with their value, that vector, and a slot of it where the value is."""
        streams, size, n = self.vectors.shape
        if not size:
            return np.zeros(streams, dtype=np.bool_), np.zeros((streams, n), dtype=np.int64), np.zeros_like(values)
        hits = self.vectors == values[:, None, None]
        if match == "authentic":
            hits &= np.arange(n) == self.authentic[:, :, None]
        fits = hits.any(axis=2)
        age = (self.pushed[:, None] - 1 - np.arange(size)) % size
        youngest = np.argmin(np.where(fits, age, size), axis=1)
        rows = np.arange(streams)
        # A value may be in a vector twice; to take the first of its slots would favour the first of all slots.
        slots = np.where(hits[rows, youngest], rng.random((streams, n)), -1.0)
        return fits.any(axis=1), self.vectors[rows, youngest], np.argmax(slots, axis=1)

    def after(self, candidates: Places, position: Places, *, new: Flags) -> Past:
        """With the new vectors put in, where there are some."""
        rows = np.flatnonzero(new)
        size = self.vectors.shape[1]
        if not size or not len(rows):
            return self
        at = self.pushed[rows] % size
        vectors, authentic, pushed = self.vectors.copy(), self.authentic.copy(), self.pushed.copy()
        vectors[rows, at], authentic[rows, at] = candidates[rows], position[rows]
        pushed[rows] += 1
        return Past(vectors, authentic, pushed)
