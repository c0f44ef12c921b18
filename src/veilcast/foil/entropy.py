"""Entropy (P3, Scenario II): fakes that make all values equally frequent in what the broker sees.

Pure. With p the law of the truth and q that of its k fakes, a message holds a value with probability (p + k q) / (k +
1). That is uniform over V values for q = ((k + 1) / V - p) / k, which is a law only if no p is above (k + 1) / V, that
is for k >= V max p - 1. With fewer fakes the rare values are filled up to a common level as far as the fakes reach, as
water fills a vessel: q = max(0, level - p) / k, which has the largest entropy that is left.

A baseline, not a defence: it holds against who does not know p, and p can be counted wherever k is too small, and
learnt elsewhere. Who knows it picks the candidate with the largest p / q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilcast.foil.chance import Chance, Numbers, Places
from veilcast.foil.generator import among, check_fakes, check_streams
from veilcast.foil.pmf import Pmf


@dataclass(frozen=True, eq=False)
class Levelling:
    k: int
    pmf: Pmf

    def __post_init__(self) -> None:
        check_fakes(self.k)

    @property
    def n(self) -> int:
        return self.k + 1

    @cached_property
    def fakes(self) -> Pmf:
        return Pmf(np.maximum(0.0, water_level(self.pmf.p, self.k) - self.pmf.p))

    @cached_property
    def composite(self) -> Numbers:
        """How often a message holds each value."""
        return (self.pmf.p + self.k * self.fakes.p) / (self.k + 1)

    def begin(self, streams: int, rng: Chance) -> int:
        return streams

    def next(self, state: int, values: Places, rng: Chance) -> tuple[int, Places, Places]:
        check_streams(values, state)
        self.pmf.checked(values)
        return state, *among(self.fakes.at(rng.random((len(values), self.n))), values, rng)


def smallest_k(pmf: Pmf) -> int:
    """How many fakes make the composite uniform."""
    return max(1, math.ceil(round(len(pmf) * float(pmf.p.max()) - 1, 9)))


def water_level(p: Numbers, amount: float) -> float:
    """Up to which level `amount` fills the vessel whose floor is p."""
    floor = np.sort(p)
    filled = np.arange(1, len(floor) + 1)
    levels = (amount + np.cumsum(floor)) / filled
    # The first so many places are under water if the level that they would have does not reach the next place's floor.
    return float(levels[np.argmax(np.append(levels[:-1] <= floor[1:], True))])
