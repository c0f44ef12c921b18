"""The shape of a Bloom filter, the bound it proves, and the keyed positions of its elements.

Pure; imports the errors. A filter here is partitioned: `hashes` slices of `width` positions, and every element sets one
position in each slice. Slices are then independent, and the chance that a filter of n elements answers wrongly for an
element it does not hold is exactly

    (1 - (1 - 1/width) ** n) ** hashes

for uniform positions; the usual formula for one shared array is an approximation, and from below (Bose et al. 2008). A
publication queries q elements and passes wrongly if any of them does. The q answers of one filter are not independent,
but by the union bound the chance is at most q times that of one. `Geometry.bound` is this product. It holds for every
filter of at most `elements` elements and every publication of at most `queries`.

Positions come from BLAKE2b under a key, never from Python's `hash`. The key decides who can compute them. The bound
assumes that the elements are chosen without the key (or, with the public key, without search for collisions).

Only the positions are arrays: a process that needs a shape alone imports no numpy.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Self

import msgspec

from veilcast.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Geometry(msgspec.Struct, frozen=True):
    """`hashes` slices of `width` positions, and the numbers of elements and queries that the bound is for."""

    hashes: int
    width: int
    elements: int
    queries: int

    def __post_init__(self) -> None:
        if not 1 <= self.hashes <= MAX_HASHES:
            raise ConfigError(f"a filter needs 1 to {MAX_HASHES} hashes")
        if not 2 <= self.width <= MAX_WIDTH:
            raise ConfigError(f"a slice needs 2 to {MAX_WIDTH} positions")
        _check_counts(self.elements, self.queries)

    @classmethod
    def sized(cls, *, elements: int, queries: int, bound: float) -> Self:
        """The shape for a bound on false positives for each publication and subscription.

        One more hash is one more row to read for each query; one more row is memory. The smallest filter takes about
        twice the hashes of one a quarter larger, so this is the fewest hashes within that quarter.
        """
        _check_counts(elements, queries)
        if not 0 < bound < 1:
            raise ConfigError("the bound of a filter lies between 0 and 1")
        every = ((hashes, _narrowest(hashes, elements, bound / queries)) for hashes in range(1, MAX_HASHES + 1))
        shapes = [(hashes, width) for hashes, width in every if width <= MAX_WIDTH]
        if not shapes:
            raise ConfigError("no filter keeps this bound: allow more false positives, or fewer elements")
        least = min(math.prod(shape) for shape in shapes)
        hashes, width = next(shape for shape in shapes if math.prod(shape) <= 1.25 * least)
        return cls(hashes=hashes, width=width, elements=elements, queries=queries)

    @property
    def rows(self) -> int:
        """All positions of a filter: its size in bits."""
        return self.hashes * self.width

    @property
    def bound(self) -> float:
        """The proven bound on the chance that a publication passes a filter it shares no element with."""
        return self.queries * false_hit(self.hashes, self.width, self.elements)

    def positions(self, elements: Collection[bytes], key: bytes) -> npt.NDArray[np.int64]:
        """The row of each element in each slice, as an array of shape (elements, hashes)."""
        import numpy as np

        digest = hashlib.blake2b(key=key, person=_PERSON)
        drawn = bytearray()
        for element in elements:
            keyed = digest.copy()
            keyed.update(element)
            drawn += keyed.digest()
        words = np.frombuffer(drawn, dtype="<u4").reshape(len(elements), MAX_HASHES)[:, : self.hashes]
        # Scale 32 random bits to 0..width-1; MAX_WIDTH keeps the product within 64. Slice follows slice.
        return (words.astype(np.int64) * self.width >> 32) + np.arange(self.hashes) * self.width


def false_hit(hashes: int, width: int, elements: int) -> float:
    """An upper bound on the chance that a filter with this number of elements answers yes for an element it does not
    hold.

    It is exact except for the scaling of 32 bits to `width` positions, some of which are drawn once in 2**32 too often;
    the likeliest position stands for all of them.
    """
    likeliest = -(-(2**32) // width) / 2**32
    taken = -math.expm1(elements * math.log1p(-likeliest))
    return float(taken**hashes)


def _check_counts(elements: int, queries: int) -> None:
    if not (1 <= elements <= MAX_COUNT and 1 <= queries <= MAX_COUNT):
        raise ConfigError(f"a filter holds, and a publication asks, 1 to {MAX_COUNT} elements")


def _narrowest(hashes: int, elements: int, chance: float) -> int:
    """The smallest width that keeps `false_hit` within a chance; more than MAX_WIDTH if none does."""
    widths = range(2, MAX_WIDTH + 1)
    return 2 + bisect_left(widths, True, key=lambda width: false_hit(hashes, width, elements) <= chance)


PUBLIC_KEY: Final = b"veilcast public filter positions"
"""For filters that hide nothing: anyone may compute an element's positions."""

MAX_HASHES: Final = 16
"""A digest of 64 bytes gives 16 positions of 32 bits."""

MAX_WIDTH: Final = 2**20

MAX_COUNT: Final = 2**32
"""Elements or queries: far more than any filter keeps a bound for, and exact in floating point."""

_PERSON: Final = b"veilcast bloom"
