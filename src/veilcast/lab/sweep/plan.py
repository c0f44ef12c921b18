"""Which runs a sweep consists of, and in which portions they are done.

A portion is a range of seeds, with all cells: so every cell has had the same seeds at any time, and a sweep that was
ended half-way has a result, of fewer seeds. Portions never cross the edge of a bucket, which is a fixed range of seeds
and a directory; more seeds later add portions and change none. Runs are numbered, cell by cell and in it seed by seed;
a run's number is all that Spark is given.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from veilcast.lab.sweep.experiment import Cell


class Portion(msgspec.Struct, frozen=True, order=True):
    """The seeds from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def bucket(self) -> int:
        return self.first // BUCKET

    @property
    def seeds(self) -> int:
        return self.last - self.first + 1

    @property
    def file(self) -> str:
        return f"seeds-{self.first:06}-{self.last:06}.parquet"


def missing(seeds: int, done: Collection[Portion]) -> list[Portion]:
    """The portions that are to be done before all of the first `seeds` seeds are there."""
    there = {seed for portion in done for seed in range(portion.first, portion.last + 1)}
    portions: list[Portion] = []
    for seed in range(seeds):
        if seed in there:
            continue
        before = portions[-1] if portions else None
        if before is not None and before.last == seed - 1 and seed % BUCKET:
            portions[-1] = Portion(before.first, seed)
        else:
            portions.append(Portion(seed, seed))
    return portions


def tasks(portion: Portion, cells: Collection[Cell], cores: int) -> int:
    """How many tasks a portion is cut into: several for each core, since cells differ in how long they take, and a core
    that had the light ones takes more."""
    return min(portion.seeds * len(cells), cores * _TASKS_PER_CORE)


BUCKET: Final = 20
"""Seeds. What is lost when a sweep is killed is at most so many runs of each cell."""

SEEDS_MAX: Final = 1_000_000
_TASKS_PER_CORE: Final = 12
