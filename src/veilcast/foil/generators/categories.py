"""Fakes of categories: entropy levelling (P3, Scenario II), buckets (Scenario III), and numbers treated as categories.

Pure. Categories are codes 0 to V - 1. `Pmf` holds their probabilities: cumulated, they lay the codes on the interval
from 0 to 1, each as long as it is likely, and a uniform number falls on a code with that code's probability.

**Entropy** (`EntropyFakes`, Scenario II): fakes that make all values equally frequent for the broker. With p the law of
the truth and q that of its k fakes, a message holds a value with probability (p + k q) / (k + 1). That is uniform over
V values for q = ((k + 1) / V - p) / k, which is a law only if no p is above (k + 1) / V, that is for k >= V max p - 1.
With fewer fakes, the rare values are filled up to a common level as far as the fakes reach (water filling): q = max(0,
level - p) / k, which has the largest remaining entropy. It is a baseline, not a defence: it works against an adversary
that does not know p. But p can be counted wherever k is too small, and learnt elsewhere. An adversary that knows p
picks the candidate with the largest p / q.

**Buckets** (`BucketFakes`, Scenario III): the law is public, and each candidate comes from its own share of it. The
interval from 0 to 1 is cut into k + 1 buckets of equal length. The truth is in one; a fake is drawn from each other.

- **hard**: a value belongs to one bucket, that in which its stretch ends. This is the letter of the paper. Discrete
  values do not fit into equal buckets, so it leaks: an adversary that finds the truth in a heavy bucket more often bets
  on it. An empty bucket has no value to draw; its fake is then drawn from all values.
- **fractional**: a value across a boundary belongs to both sides in proportion. The truth is at a random point of its
  stretch, each fake at a random point of its bucket. Every candidate was then drawn with the same density, and each
  bucket is equally likely to hold the truth: exactly 1 / (k + 1). But one value may be drawn on both sides of a
  boundary.
- **systematic**: the same, with all fakes at the same offset in their buckets as the truth. Each candidate alone is
  distributed as before, and two are never closer than a bucket's length. No value appears twice unless it is longer
  than a bucket, where no scheme could hide it: an adversary that always names it is right more often than 1 / (k + 1).
  Statisticians call such sets systematic samples (Madow, 1949).

`PastVectors` is a bounded queue of past vectors for each stream, oldest out first. P3 finds a vector if the value "can
be found in some vector": by its authentic value, or by any of its values. The youngest of several that fit is used. A
long queue leaks over time: a cached value comes back with the same fakes, and an adversary that counts which values
appear together recognises it. Without a queue, a lasting value is the intersection of all its sets. A queue of one
vector uses it as long as the value stays. The remaining leak: a new vector means a new value. Where it shares a value
with the one before, that value was not true both times, and a guess is right with n / (n^2 - 1) instead of 1 / n. P3
says that the queue "is updated accordingly" when a value is found: here it stays as it is, first in, first out.

**Numbers as categories** (`CodedNumbers`): a generator for codes, used on an attribute with few different values. The
table of values is declared; a value outside the table is refused. Other numbers are coded by their cells (`CellFakes`),
and the weight of a cell is counted in a history.
"""

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

VectorMatch: TypeAlias = Literal["authentic", "any"]


BoolArray: TypeAlias = npt.NDArray[np.bool_]


Buckets: TypeAlias = Literal["hard", "fractional", "systematic"]


class Pmf:
    def __init__(self, weights: npt.ArrayLike) -> None:
        p = np.array(weights, dtype=np.float64)
        if p.ndim != 1 or len(p) < 2 or not np.isfinite(p).all() or (p < 0).any() or np.count_nonzero(p) < 2:
            raise ConfigError("probabilities need at least two values, finite and not negative, two of them above 0")
        self.p: FloatArray = p / p.sum()
        self.below: FloatArray = np.concatenate([[0.0], np.cumsum(self.p)[:-1]])
        """Start of each code on the interval."""
        self.upto: FloatArray = np.append(self.below[1:], 1.0)

    def __len__(self) -> int:
        return len(self.p)

    def codes_at(self, where: FloatArray) -> IntArray:
        """The codes at these points of the interval."""
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
        """Rounding may leave a tiny gap at the end; it belongs to the last code with a positive probability."""
        return int(np.flatnonzero(self.p)[-1])


@dataclass(frozen=True, eq=False)
class PastVectors:
    vectors: IntArray
    """[streams, size, n]; -1 in unused entries."""
    authentic: IntArray
    """[streams, size]: slot of the truth in each vector when it was made."""
    pushed: IntArray
    """[streams]: number of vectors that have ever been added."""

    @classmethod
    def empty(cls, streams: int, size: int, n: int) -> Self:
        vectors = np.full((streams, size, n), -1, dtype=np.int64)
        return cls(vectors, np.zeros((streams, size), dtype=np.int64), np.zeros(streams, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.vectors)

    def found(self, values: IntArray, match: VectorMatch, rng: RandomSource) -> tuple[BoolArray, IntArray, IntArray]:
        """Find the streams that have a vector with their value, that vector, and a slot of it with the value."""
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
        # A value may be in a vector twice; its first slot would be drawn too often.
        slots = np.where(hits[rows, youngest], rng.random((streams, n)), -1.0)
        return fits.any(axis=1), self.vectors[rows, youngest], np.argmax(slots, axis=1)

    def after(self, candidates: IntArray, position: IntArray, *, new: BoolArray) -> PastVectors:
        """The queue with the new vectors added, where there are some."""
        rows = np.flatnonzero(new)
        size = self.vectors.shape[1]
        if not size or not len(rows):
            return self
        at = self.pushed[rows] % size
        vectors, authentic, pushed = self.vectors.copy(), self.authentic.copy(), self.pushed.copy()
        vectors[rows, at], authentic[rows, at] = candidates[rows], position[rows]
        pushed[rows] += 1
        return PastVectors(vectors, authentic, pushed)


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
        """Probability that a message holds each value."""
        return (self.pmf.p + self.k * self.fakes.p) / (self.k + 1)

    def begin(self, streams: int, rng: RandomSource) -> int:
        return streams

    def next(self, state: int, values: IntArray, rng: RandomSource) -> tuple[int, IntArray, IntArray]:
        check_streams(values, state)
        self.pmf.check_codes(values)
        return state, *insert_truth(self.fakes.codes_at(rng.random((len(values), self.n))), values, rng)


def fakes_for_uniform(pmf: Pmf) -> int:
    """The number of fakes that makes the composite uniform."""
    return max(1, math.ceil(round(len(pmf) * float(pmf.p.max()) - 1, 9)))


def water_level(p: FloatArray, amount: float) -> float:
    """The level up to which `amount` fills the vessel whose floor is p."""
    floor = np.sort(p)
    filled = np.arange(1, len(floor) + 1)
    levels = (amount + np.cumsum(floor)) / filled
    # The first places are under water up to the last whose level does not reach the next place's floor.
    return float(levels[np.argmax(np.append(levels[:-1] <= floor[1:], True))])


@dataclass(frozen=True, eq=False)
class CodedNumbers(Generic[State]):
    table: FloatArray
    """Increasing; code i is its i-th value."""
    generator: Generator[State, np.int64]

    def __post_init__(self) -> None:
        if len(self.table) < 2 or not (np.diff(self.table) > 0).all() or not np.isfinite(self.table).all():
            raise ConfigError("the values of a table must be finite and increasing")

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


@dataclass(frozen=True, eq=False)
class CellFakes(Generic[State]):
    """Numbers as the cells that hold them, so that numbers without a table of values have buckets, too."""

    low: float
    width: float
    generator: Generator[State, np.int64]
    cells: int

    @property
    def n(self) -> int:
        return self.generator.n

    def begin(self, streams: int, rng: RandomSource) -> State:
        return self.generator.begin(streams, rng)

    def next(self, state: State, values: FloatArray, rng: RandomSource) -> tuple[State, FloatArray, IntArray]:
        state, candidates, position = self.generator.next(state, self.codes(values), rng)
        found = np.asarray(self.low + (candidates + 0.5) * self.width, np.float64)
        found[np.arange(len(values)), position] = values
        return state, found, position

    def codes(self, values: FloatArray) -> IntArray:
        return np.clip(((values - self.low) / self.width).astype(np.int64), 0, self.cells - 1)


@dataclass(frozen=True, eq=False)
class BucketFakes:
    k: int
    pmf: Pmf
    buckets: Buckets = "systematic"
    cache: int = 1
    """Number of vectors of each stream that are kept for reuse."""
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

    def begin(self, streams: int, rng: RandomSource) -> PastVectors:
        return PastVectors.empty(streams, self.cache, self.n)

    def next(self, state: PastVectors, values: IntArray, rng: RandomSource) -> tuple[PastVectors, IntArray, IntArray]:
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
        """Start and end of the values of each hard bucket on the interval; an empty bucket covers all values."""
        masses = np.bincount(self._bucket_of, weights=self.pmf.p, minlength=self.n)
        high = np.cumsum(masses)
        return np.where(masses > 0, high - masses, 0.0), np.where(masses > 0, high, 1.0)


CACHE_MAX: Final = 4096
"""Largest number of vectors, of k + 1 codes each, that a stream keeps."""
