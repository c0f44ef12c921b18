"""Random sources for fakes: an interface that `numpy`'s generators fulfil, and a cryptographic implementation.

Pure. An observer of fakes sees the output of the random source. From enough output, the state of a simulation generator
can be computed, and with it every later fake; the remaining candidate is true. The lab uses such generators because
they are fast. A publisher with something to hide uses `SecretRandom`, whose numbers are the bytes of a cryptographic
source.
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
    """A `numpy.random.Generator` fulfils this protocol."""

    def random(self, size: tuple[int, ...]) -> FloatArray:
        """Uniform on [0, 1)."""

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray: ...


class SecretRandom:
    """Random numbers as good as the bytes of `entropy`."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def random(self, size: tuple[int, ...]) -> FloatArray:
        words = np.frombuffer(self._entropy(8 * math.prod(size)), dtype="<u8")
        return (words >> np.uint64(_UNUSED)).astype(np.float64).reshape(size) * 2.0**-_MANTISSA

    def standard_normal(self, size: tuple[int, ...]) -> FloatArray:
        """Box-Muller: a length and an angle. Only one coordinate of each pair is used, which keeps the code short."""
        length, angle = self.random((2, *size))
        normal: FloatArray = np.sqrt(-2 * np.log1p(-length)) * np.cos(2 * np.pi * angle)
        return normal


def draw_integers(rng: RandomSource, n: int, size: tuple[int, ...]) -> IntArray:
    """Uniform over 0 to n - 1; for every n used in this room, no number is more likely than another by more than
    2^-40."""
    return (rng.random(size) * n).astype(np.int64)


_MANTISSA: Final = 53
_UNUSED: Final = 64 - _MANTISSA
