"""What numbers an attribute can be, and how they are written: the declared domain that truth and fakes share.

Pure. A fake that could not be true gives itself away: one below zero where prices are meant, and one with fifteen
digits among values that have two. So truth outside of the declared span is refused before it is published, and fakes
are folded back at its ends, as by mirrors, and rounded as the truth is. Rounding is to decimals: a whole number divided
by a power of ten is the very double that the written number reads as, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.random_source import FloatArray


@dataclass(frozen=True)
class NumericDomain:
    low: float = -math.inf
    high: float = math.inf
    decimals: int | None = None
    """Digits after the point. None is for computed series that nobody writes down."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError("a span reaches from low to high, low < high")
        if self.decimals is not None and not 0 <= self.decimals <= DECIMALS_MAX:
            raise ConfigError(f"a number has 0 to {DECIMALS_MAX} decimals")
        for end in (self.low, self.high):
            if math.isfinite(end) and float(self._rounded(np.array(end))) != end:
                raise ConfigError(f"the ends of a span have {self.decimals} decimals, too")

    def check(self, values: FloatArray) -> FloatArray:
        """The values, if all can be published."""
        if not np.isfinite(values).all():
            raise LocalError("a value is not a finite number; a gap is filled before it is foiled, or not published")
        if not ((values >= self.low) & (values <= self.high)).all():
            raise LocalError(f"a value lies outside of the declared {self.low} to {self.high}")
        if not (self._rounded(values) == values).all():
            raise LocalError(f"a value has more than the declared {self.decimals} decimals")
        return values

    def fit(self, fakes: FloatArray) -> FloatArray:
        """The nearest that could be true."""
        if not np.isfinite(fakes).all():
            raise LocalError("the law of the fakes leads beyond all numbers: its moves are too large")
        return self._rounded(self._folded(fakes))

    def _folded(self, fakes: FloatArray) -> FloatArray:
        """Those outside alone: arithmetic would change the last bits of the others."""
        outside = (fakes < self.low) | (fakes > self.high)
        if not outside.any():
            return fakes
        if math.isinf(self.high):
            mirrored = self.low + np.abs(fakes - self.low)
        elif math.isinf(self.low):
            mirrored = self.high - np.abs(fakes - self.high)
        else:
            width = self.high - self.low
            mirrored = self.low + (width - np.abs((fakes - self.low) % (2 * width) - width))
        return np.where(outside, np.clip(mirrored, self.low, self.high), fakes)

    def _rounded(self, values: FloatArray) -> FloatArray:
        return values if self.decimals is None else np.round(values, self.decimals)


UNBOUNDED: Final = NumericDomain()

DECIMALS_MAX: Final = 15
