"""Where fakes get their chance from: two methods, which `numpy`'s generators have, and one that nobody can look into.

Pure. Whoever sees fakes sees what chance gave. From enough of it the state of a generator that was made for simulations
can be computed, and with it every fake to come; what is left over is true. The lab uses those, for they are fast. Who
has something to hide uses `SecretChance`, whose numbers are the bytes of a cryptographic source, handed in.
"""

from __future__ import annotations

import math
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.machine import Entropy

Numbers: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]


class Chance(Protocol):
    """A `numpy.random.Generator` is one."""

    def random(self, size: tuple[int, ...]) -> Numbers:
        """Uniform from 0 up to and without 1."""

    def standard_normal(self, size: tuple[int, ...]) -> Numbers: ...


class SecretChance:
    """As good as the bytes that `entropy` gives."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def random(self, size: tuple[int, ...]) -> Numbers:
        words = np.frombuffer(self._entropy(8 * math.prod(size)), dtype="<u8")
        return (words >> np.uint64(_UNUSED)).astype(np.float64).reshape(size) * 2.0**-_MANTISSA

    def standard_normal(self, size: tuple[int, ...]) -> Numbers:
        """By Box and Muller: a length and an angle. Of each pair only one coordinate is used, which keeps it short."""
        length, angle = self.random((2, *size))
        normal: Numbers = np.sqrt(-2 * np.log1p(-length)) * np.cos(2 * np.pi * angle)
        return normal


def pick(rng: Chance, n: int, size: tuple[int, ...]) -> Places:
    """Uniform over 0 to n - 1; for the n of this room no number is more likely than another by more than 2^-40."""
    return (rng.random(size) * n).astype(np.int64)


_MANTISSA: Final = 53
_UNUSED: Final = 64 - _MANTISSA
