"""The numeric domain of an attribute: the declared range and precision that truth and fakes share.

Pure. A fake that could not be true is recognisable: a negative price, or a number with fifteen digits among values that
have two. So a true value outside the declared domain is refused before it is published, and fakes are reflected at the
ends of the domain and rounded like the truth. Rounding is to decimals: an integer divided by a power of ten is exactly
the double that the written number reads as.
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
    """Digits after the point. None: a computed series without a written form."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError("a numeric domain must have low < high")
        if self.decimals is not None and not 0 <= self.decimals <= DECIMALS_MAX:
            raise ConfigError(f"a number has 0 to {DECIMALS_MAX} decimals")
        for end in (self.low, self.high):
            if math.isfinite(end) and float(self._round(np.array(end))) != end:
                raise ConfigError(f"the ends of a domain must have at most {self.decimals} decimals")

    def check(self, values: FloatArray) -> FloatArray:
        """The values, if all can be published."""
        if not np.isfinite(values).all():
            raise LocalError("a value is not a finite number; a gap is filled before it is foiled, or not published")
        if not ((values >= self.low) & (values <= self.high)).all():
            raise LocalError(f"a value lies outside of the declared {self.low} to {self.high}")
        if not (self._round(values) == values).all():
            raise LocalError(f"a value has more than the declared {self.decimals} decimals")
        return values

    def fit(self, fakes: FloatArray) -> FloatArray:
        """The nearest values that could be true."""
        if not np.isfinite(fakes).all():
            raise LocalError("the fakes overflow: the moves of their law are too large")
        return self._round(self._reflect(fakes))

    def _reflect(self, fakes: FloatArray) -> FloatArray:
        """Changes only values outside the domain: arithmetic would change the last bits of the others."""
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

    def _round(self, values: FloatArray) -> FloatArray:
        return values if self.decimals is None else np.round(values, self.decimals)


UNBOUNDED: Final = NumericDomain()

DECIMALS_MAX: Final = 15
