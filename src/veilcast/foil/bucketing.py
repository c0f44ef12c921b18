"""Bucketing (P3, Scenario III): the law is known to all, and each candidate comes from its own share of it.

Pure, for codes; `coded` brings numbers. The values lie on the interval from 0 to 1, each as long as it is likely, and
the interval is cut into k + 1 buckets of equal length. The truth is in one; a fake is drawn from each other.

- **hard**: a value belongs to one bucket, that in which its stretch ends. This is the letter of the paper, and as
  discrete values do not fit into equal buckets, it leaks: who finds the truth in a heavy bucket more often bets on it.
  An empty bucket has no value to draw; its fake is then drawn from all.
- **fractional**: a value that straddles an edge belongs to both sides in proportion. The truth is at a random point of
  its stretch, each fake at a random point of its bucket. Every candidate was then drawn with the same density, and in
  whichever bucket the truth is, that is equally likely: exactly 1 / (k + 1). But one value may be drawn on both sides.
- **systematic**: the same, with all fakes as far into their bucket as the truth is into its own. Each alone is as
  before, and two are never closer than a bucket's length: no value comes twice unless it is longer than a bucket, where
  no scheme could hide it, as who always names it is right more often than 1 / (k + 1). Such sets are known to
  statisticians as systematic samples (Madow, 1949).

The queue of past vectors leaks over time if it is long: a value that is cached comes back with the same fakes, and who
counts what comes together knows it again. Without any, a lasting value is what all its sets share. A queue of one
vector uses it as long as the value stays, and no longer. What is left is that a new vector means a new value: where it
shares a value with the one before, that value was not true both times, and a guess is right with n / (n^2 - 1) in place
of 1 / n. P3 says that the queue "is updated accordingly" when a value is found: here it stays as it is, first in, first
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.chance import Chance, Numbers, Places, pick
from veilcast.foil.generator import check_fakes, check_streams, placed
from veilcast.foil.pmf import Pmf
from veilcast.foil.recall import Match, Past

Buckets: TypeAlias = Literal["hard", "fractional", "systematic"]


@dataclass(frozen=True, eq=False)
class Bucketing:
    k: int
    pmf: Pmf
    buckets: Buckets = "systematic"
    cache: int = 1
    """How many vectors of each stream are kept to be used again."""
    match: Match = "authentic"

    def __post_init__(self) -> None:
        check_fakes(self.k)
        if self.buckets not in ("hard", "fractional", "systematic"):
            raise ConfigError("buckets are hard, fractional or systematic")
        if self.match not in ("authentic", "any"):
            raise ConfigError("a cached vector matches by its authentic value, or by any")
        if not 0 <= self.cache <= CACHE_MAX:
            raise ConfigError(f"a cache has 0 to {CACHE_MAX} vectors")

    @property
    def n(self) -> int:
        return self.k + 1

    def begin(self, streams: int, rng: Chance) -> Past:
        return Past.empty(streams, self.cache, self.n)

    def next(self, state: Past, values: Places, rng: Chance) -> tuple[Past, Places, Places]:
        check_streams(values, len(state))
        fresh, bucket = self.drawn(self.pmf.checked(values), rng)
        position = pick(rng, self.n, (len(values),))
        fresh = placed(fresh, bucket, position, rng)
        known, found, slot = state.found(values, self.match, rng)
        candidates = np.where(known[:, None], found, fresh)
        position = np.where(known, slot, position)
        return state.after(candidates, position, new=~known), candidates, position

    def drawn(self, values: Places, rng: Chance) -> tuple[Places, Places]:
        """Vectors of [streams, n] with a candidate from each bucket, in order, and the bucket of the truth."""
        rows = np.arange(len(values))
        into = rng.random((len(values), self.n))
        if self.buckets == "hard":
            bucket = self._bucket_of[values]
            low, high = self._ends
            candidates = self.pmf.at(low + into * (high - low))
        else:
            stretch = self.pmf.below[values] + rng.random((len(values),)) * self.pmf.p[values]
            bucket = np.minimum((stretch * self.n).astype(np.int64), self.k)
            if self.buckets == "systematic":
                into = (stretch * self.n - bucket)[:, None]
            candidates = self.pmf.at((np.arange(self.n) + into) / self.n)
        candidates[rows, bucket] = values
        return candidates, bucket

    @cached_property
    def _bucket_of(self) -> Places:
        ends = np.ceil(np.round(self.pmf.upto * self.n, 9)).astype(np.int64) - 1
        return np.clip(ends, 0, self.k)

    @cached_property
    def _ends(self) -> tuple[Numbers, Numbers]:
        """From where to where on the interval the values of each hard bucket lie; of an empty one, all do."""
        masses = np.bincount(self._bucket_of, weights=self.pmf.p, minlength=self.n)
        high = np.cumsum(masses)
        return np.where(masses > 0, high - masses, 0.0), np.where(masses > 0, high, 1.0)


CACHE_MAX: Final = 4096
"""A stream then keeps so many vectors of k + 1 codes."""
