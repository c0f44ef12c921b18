"""Which runs a sweep consists of, and in which portions they are done.

A portion is a range of seeds, with all cells: so every cell has had the same seeds at any time, and a sweep that was
ended half-way has a result, of fewer seeds. Portions never cross the edge of a bucket, which is a fixed range of seeds
and a directory; more seeds later add portions and change none.

Spark is given jobs. A job costs a while, and so does a task in it, a tenth of a second; a run may take less than one
thousandth. So once it is known how long runs take, portions of short ones are done together, in few tasks. The first
job is one portion, cut finely. Into what jobs portions go shows in none of their bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec


class SeedPortion(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The seeds from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def bucket(self) -> int:
        return self.first // BUCKET_SEEDS

    @property
    def seeds(self) -> int:
        return self.last - self.first + 1

    @property
    def file(self) -> str:
        return f"seeds-{self.first:06}-{self.last:06}.parquet"


def missing_portions(seeds: int, done: Collection[SeedPortion]) -> list[SeedPortion]:
    """The portions that are to be done before all of the first `seeds` seeds are there."""
    there = {seed for portion in done for seed in range(portion.first, portion.last + 1)}
    portions: list[SeedPortion] = []
    for seed in range(seeds):
        if seed in there:
            continue
        before = portions[-1] if portions else None
        if before is not None and before.last == seed - 1 and seed % BUCKET_SEEDS:
            portions[-1] = SeedPortion(before.first, seed)
        else:
            portions.append(SeedPortion(seed, seed))
    return portions


class RunPace(NamedTuple):
    """Of a run, as those before it were."""

    seconds: float
    rows: float


class SweepJob(NamedTuple):
    """Portions that Spark is given together, and into how many tasks their runs are cut. A run's number is all that a
    task is given: runs are numbered cell by cell, and in it seed by seed."""

    portions: tuple[SeedPortion, ...]
    tasks: int

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed for portion in self.portions for seed in range(portion.first, portion.last + 1))


def next_job(waiting: Sequence[SeedPortion], cells: int, cores: int, pace: RunPace | None) -> SweepJob:
    """The next, of portions of which one at least waits."""
    taken, runs = 1, waiting[0].seeds * cells
    if pace is not None:
        most = min(_JOB_S * cores / pace.seconds, _JOB_ROWS / pace.rows)
        while taken < len(waiting) and runs + waiting[taken].seeds * cells <= most:
            runs += waiting[taken].seeds * cells
            taken += 1
    # Several for each core, since cells differ in how long they take, and a core that had the light ones takes more.
    tasks = cores * _TASKS_PER_CORE
    if pace is not None:
        tasks = max(cores, min(tasks, round(runs * pace.seconds / _TASK_S)))
    return SweepJob(tuple(waiting[:taken]), min(runs, tasks))


BUCKET_SEEDS: Final = 20
"""Seeds. What is lost when a sweep is killed is at most so many runs of each cell, or a job of short ones."""

SEEDS_MAX: Final = 1_000_000
_TASKS_PER_CORE: Final = 12
_TASK_S: Final = 0.5
"""Shorter tasks cost more than they even out."""
_JOB_S: Final = 10.0
_JOB_ROWS: Final = 2_000_000
"""This process holds them."""
