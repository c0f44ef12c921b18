"""Noise (P3, Scenario I and Eq. 2): each fake is the truth plus white Gaussian noise.

Pure. This is the paper's scheme, and its weakness: the truth is the centre of its own fakes. The candidate next to
their mean is true more often than any other, and over time it is the only one that moves as the law says.

The noise is "of the same order as the variance of dS" for dS = sigma S eps sqrt(dt), but Table I fits no reading of
that with one-minute steps; see `READINGS`. So the deviation is explicit: `scale` times the value to the `power`, which
is 0 for absolute noise, 1 for relative, and 2 for the one reading that takes a variance for a deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import check_fakes, check_streams, insert_truth
from veilcast.foil.generators.numeric_domain import UNBOUNDED, NumericDomain
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource


@dataclass(frozen=True)
class NoiseFakes:
    k: int
    scale: float
    power: int = 0
    domain: NumericDomain = UNBOUNDED

    def __post_init__(self) -> None:
        check_fakes(self.k)
        if not 0 < self.scale < math.inf:
            raise ConfigError("noise has a deviation above 0")
        if self.power not in (0, 1, 2):
            raise ConfigError("noise is absolute, relative, or relative to the square: power 0, 1 or 2")

    @classmethod
    def as_published(cls, k: int, reading: str, factor: float = 1, domain: NumericDomain = UNBOUNDED) -> Self:
        """Table I's noise, of `factor` times the variance, by one of the `READINGS`."""
        if reading not in READINGS:
            raise ConfigError(f"the readings of Table I are {', '.join(READINGS)}")
        scale, power = READINGS[reading]
        return cls(k, scale * math.sqrt(factor), power, domain)

    @property
    def n(self) -> int:
        return self.k + 1

    def deviation(self, values: FloatArray) -> FloatArray:
        return self.scale * np.abs(values) ** self.power

    def begin(self, streams: int, rng: RandomSource) -> int:
        return streams

    def next(self, state: int, values: FloatArray, rng: RandomSource) -> tuple[int, FloatArray, IntArray]:
        check_streams(values, state)
        deviation = self.deviation(self.domain.check(values))
        if not deviation.all():
            raise LocalError("relative noise around 0 vanishes: the value would stand alone")
        noise = rng.standard_normal((len(values), self.n))
        return state, *insert_truth(self.domain.fit(values[:, None] + deviation[:, None] * noise), values, rng)


SIGMA: Final = 0.15
"""The paper's volatility of a stock, per year."""

SECOND: Final = 1 / (365 * 24 * 60 * 60)
MINUTE: Final = 60 * SECOND
TRADING_MINUTE: Final = 1 / (252 * 390)
"""Steps in years: of the calendar, and of 252 days of 390 minutes."""

READINGS: Final = {
    "second": (SIGMA * math.sqrt(SECOND), 1),
    "minute": (SIGMA * math.sqrt(MINUTE), 1),
    "trading-minute": (SIGMA * math.sqrt(TRADING_MINUTE), 1),
    "variance": (SIGMA**2 * MINUTE, 2),
}
"""Possible meanings of Table I's factor 1. With Google at 439 to 742 the first and the last fit; the text says the
second.
"""
