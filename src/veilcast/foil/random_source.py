"""Where fakes get their chance from: two methods, which `numpy`'s generators have, and one that nobody can look into.

Pure. Whoever sees fakes sees what chance gave. From enough of it the state of a generator that was made for simulations
can be computed, and with it every fake to come; what is left over is true. The lab uses those, for they are fast. Who
has something to hide uses `SecretRandom`, whose numbers are the bytes of a cryptographic source, handed in.
"""

from __future__ import annotations

import math
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.machine import Entropy

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


class RandomSource(Protocol):
    """A `numpy.random.Generator` is one."""

    def random(self, size: tuple[int, ...]) -> FloatArray:
        """Uniform from 0 up to and without 1."""

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray: ...


class SecretRandom:
    """As good as the bytes that `entropy` gives."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def random(self, size: tuple[int, ...]) -> FloatArray:
        words = np.frombuffer(self._entropy(8 * math.prod(size)), dtype="<u8")
        return (words >> np.uint64(_UNUSED)).astype(np.float64).reshape(size) * 2.0**-_MANTISSA

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray:
        """By Box and Muller: a length and an angle. Of each pair only one coordinate is used, which keeps it short."""
        length, angle = self.random((2, *size))
        normal: FloatArray = np.sqrt(-2 * np.log1p(-length)) * np.cos(2 * np.pi * angle)
        return normal


def draw_integers(rng: RandomSource, n: int, size: tuple[int, ...]) -> IntArray:
    """Uniform over 0 to n - 1; for the n of this room no number is more likely than another by more than 2^-40."""
    return (rng.random(size) * n).astype(np.int64)


_MANTISSA: Final = 53
_UNUSED: Final = 64 - _MANTISSA
