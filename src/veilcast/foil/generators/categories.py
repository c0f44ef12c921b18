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


Probabilities of categories: checked once, cumulated once, drawn from by one look-up for each number.

Pure. Categories are codes 0 to V - 1. The cumulated probabilities lay them on the interval from 0 to 1, each as long as
it is likely; a uniform number falls on a code with that code's probability.


The vectors that a foiler keeps to use again (P3, Scenario III): a bounded queue for each stream, oldest out first.

Pure; a value, as every state of a generator is. A vector is found by its authentic value, or by any of its values: P3
says "can be found in some vector", which is either. Of several that fit, the youngest is used.


Entropy (P3, Scenario II): fakes that make all values equally frequent in what the broker sees.

Pure. With p the law of the truth and q that of its k fakes, a message holds a value with probability (p + k q) / (k +
1). That is uniform over V values for q = ((k + 1) / V - p) / k, which is a law only if no p is above (k + 1) / V, that
is for k >= V max p - 1. With fewer fakes the rare values are filled up to a common level as far as the fakes reach, as
water fills a vessel: q = max(0, level - p) / k, which has the largest entropy that is left.

A baseline, not a defence: it holds against who does not know p, and p can be counted wherever k is too small, and
learnt elsewhere. Who knows it picks the candidate with the largest p / q.


Numbers as categories: a generator for codes, used on an attribute with few enough different values.

Pure. The table of values is declared, or counted from a history; a value that is not in it is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import Generator, State, check_fakes, check_streams, insert_truth, place_truth
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource, draw_integers


class Pmf:
    def __init__(self, weights: npt.ArrayLike) -> None:
        p = np.array(weights, dtype=np.float64)
        if p.ndim != 1 or len(p) < 2 or not np.isfinite(p).all() or (p < 0).any() or np.count_nonzero(p) < 2:
            raise ConfigError("probabilities are of two values or more, finite and not negative, two of them above 0")
        self.p: FloatArray = p / p.sum()
        self.below: FloatArray = np.concatenate([[0.0], np.cumsum(self.p)[:-1]])
        """Of each code, where on the interval it begins."""
        self.upto: FloatArray = np.append(self.below[1:], 1.0)

    def __len__(self) -> int:
        return len(self.p)

    def codes_at(self, where: FloatArray) -> IntArray:
        """The codes that lie there."""
        return np.minimum(np.searchsorted(self.upto, where, side="right"), self._last)

    def check_codes(self, codes: IntArray) -> IntArray:
        """The codes, if all can be published."""
        if not np.issubdtype(codes.dtype, np.integer):
            raise LocalError("categories are whole numbers, their codes")
        if not ((codes >= 0) & (codes < len(self.p))).all():
            raise LocalError(f"a code lies outside of the declared 0 to {len(self.p) - 1}")
        if not self.p[codes].all():
            raise LocalError("a code has probability 0: as it was declared, it cannot be true")
        return codes

    @property
    def _last(self) -> int:
        """Where rounding leaves a hair's breadth at the end, it belongs to the last code that can be."""
        return int(np.flatnonzero(self.p)[-1])


VectorMatch: TypeAlias = Literal["authentic", "any"]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Past:
    vectors: IntArray
    """Of [streams, size, n]; -1 where there is none yet."""
    authentic: IntArray
    """Of [streams, size]: in which slot of each vector the truth was when it was made."""
    pushed: IntArray
    """Of [streams]: how many vectors have ever been put in."""

    @classmethod
    def empty(cls, streams: int, size: int, n: int) -> Self:
        vectors = np.full((streams, size, n), -1, dtype=np.int64)
        return cls(vectors, np.zeros((streams, size), dtype=np.int64), np.zeros(streams, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.vectors)

    def found(self, values: IntArray, match: VectorMatch, rng: RandomSource) -> tuple[BoolArray, IntArray, IntArray]:
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

    def after(self, candidates: IntArray, position: IntArray, *, new: BoolArray) -> Past:
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


@dataclass(frozen=True, eq=False)
class EntropyFakes:
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
    def composite(self) -> FloatArray:
        """How often a message holds each value."""
        return (self.pmf.p + self.k * self.fakes.p) / (self.k + 1)

    def begin(self, streams: int, rng: RandomSource) -> int:
        return streams

    def next(self, state: int, values: IntArray, rng: RandomSource) -> tuple[int, IntArray, IntArray]:
        check_streams(values, state)
        self.pmf.check_codes(values)
        return state, *insert_truth(self.fakes.codes_at(rng.random((len(values), self.n))), values, rng)


def fakes_for_uniform(pmf: Pmf) -> int:
    """How many fakes make the composite uniform."""
    return max(1, math.ceil(round(len(pmf) * float(pmf.p.max()) - 1, 9)))


def water_level(p: FloatArray, amount: float) -> float:
    """Up to which level `amount` fills the vessel whose floor is p."""
    floor = np.sort(p)
    filled = np.arange(1, len(floor) + 1)
    levels = (amount + np.cumsum(floor)) / filled
    # The first so many places are under water if the level that they would have does not reach the next place's floor.
    return float(levels[np.argmax(np.append(levels[:-1] <= floor[1:], True))])


@dataclass(frozen=True, eq=False)
class CodedNumbers(Generic[State]):
    table: FloatArray
    """Rising; code i is its i-th value."""
    generator: Generator[State, np.int64]

    def __post_init__(self) -> None:
        if len(self.table) < 2 or not (np.diff(self.table) > 0).all() or not np.isfinite(self.table).all():
            raise ConfigError("the values of a table rise, and are finite")

    @property
    def n(self) -> int:
        return self.generator.n

    def begin(self, streams: int, rng: RandomSource) -> State:
        return self.generator.begin(streams, rng)

    def next(self, state: State, values: FloatArray, rng: RandomSource) -> tuple[State, FloatArray, IntArray]:
        codes = np.minimum(np.searchsorted(self.table, values), len(self.table) - 1)
        if not (self.table[codes] == values).all():
            raise LocalError("a value is not in the declared table")
        state, candidates, position = self.generator.next(state, codes, rng)
        return state, self.table[candidates], position


def count_values(history: FloatArray) -> tuple[FloatArray, Pmf]:
    """The table of a history, and how often each of its values was true."""
    if not np.isfinite(history).all():
        raise LocalError("a history is of finite numbers")
    table, counts = np.unique(history, return_counts=True)
    if len(table) < 2:
        raise LocalError("a history that never changes has nothing that could be true instead")
    return table, Pmf(counts)


Buckets: TypeAlias = Literal["hard", "fractional", "systematic"]


@dataclass(frozen=True, eq=False)
class BucketFakes:
    k: int
    pmf: Pmf
    buckets: Buckets = "systematic"
    cache: int = 1
    """How many vectors of each stream are kept to be used again."""
    match: VectorMatch = "authentic"

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

    def begin(self, streams: int, rng: RandomSource) -> Past:
        return Past.empty(streams, self.cache, self.n)

    def next(self, state: Past, values: IntArray, rng: RandomSource) -> tuple[Past, IntArray, IntArray]:
        check_streams(values, len(state))
        fresh, bucket = self.draw(self.pmf.check_codes(values), rng)
        position = draw_integers(rng, self.n, (len(values),))
        fresh = place_truth(fresh, bucket, position, rng)
        known, found, slot = state.found(values, self.match, rng)
        candidates = np.where(known[:, None], found, fresh)
        position = np.where(known, slot, position)
        return state.after(candidates, position, new=~known), candidates, position

    def draw(self, values: IntArray, rng: RandomSource) -> tuple[IntArray, IntArray]:
        """Vectors of [streams, n] with a candidate from each bucket, in order, and the bucket of the truth."""
        rows = np.arange(len(values))
        into = rng.random((len(values), self.n))
        if self.buckets == "hard":
            bucket = self._bucket_of[values]
            low, high = self._ends
            candidates = self.pmf.codes_at(low + into * (high - low))
        else:
            stretch = self.pmf.below[values] + rng.random((len(values),)) * self.pmf.p[values]
            bucket = np.minimum((stretch * self.n).astype(np.int64), self.k)
            if self.buckets == "systematic":
                into = (stretch * self.n - bucket)[:, None]
            candidates = self.pmf.codes_at((np.arange(self.n) + into) / self.n)
        candidates[rows, bucket] = values
        return candidates, bucket

    @cached_property
    def _bucket_of(self) -> IntArray:
        ends = np.ceil(np.round(self.pmf.upto * self.n, 9)).astype(np.int64) - 1
        return np.clip(ends, 0, self.k)

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """From where to where on the interval the values of each hard bucket lie; of an empty one, all do."""
        masses = np.bincount(self._bucket_of, weights=self.pmf.p, minlength=self.n)
        high = np.cumsum(masses)
        return np.where(masses > 0, high - masses, 0.0), np.where(masses > 0, high, 1.0)


CACHE_MAX: Final = 4096
"""A stream then keeps so many vectors of k + 1 codes."""
