"""Divides the runs of a sweep into portions, and portions into Spark jobs.

A portion is a range of seeds, with all cells. So every cell has had the same seeds at any time, and an interrupted
sweep has a result, of fewer seeds. A bucket is a fixed range of seeds and a directory. Portions never cross the edge of
a bucket: more seeds later add portions and change none. The first buckets have twenty seeds; later ones grow with the
seeds before them, so that a million seeds are some hundred files, and a kill loses at most a fifth of what was done.

Spark runs jobs. A job has overhead, and so has each of its tasks, a tenth of a second; a run may take less than one
thousandth. So once the duration of runs is known, portions of short runs share a job of few tasks. The first job is one
portion, cut finely. The jobs that portions share do not change a byte of the results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec


class SeedPortion(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """The seeds from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def bucket(self) -> int:
        """The number of the directory."""
        return self.first // BUCKET_SEEDS

    @property
    def seeds(self) -> int:
        return self.last - self.first + 1

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return f"seeds-{self.first:06}-{self.last:06}"


def bucket_starts(seeds: int, cells: int) -> Iterator[int]:
    """The first seed of each bucket below `seeds`."""
    start, size = 0, BUCKET_SEEDS
    most = max(BUCKET_SEEDS, _PORTION_RUNS // cells)
    while start < seeds:
        yield start
        while 2 * size <= min(start // _SHARE, most):
            size *= 2
        start += size


def missing_portions(seeds: int, done: Collection[SeedPortion], cells: int) -> list[SeedPortion]:
    """The portions that are missing of the first `seeds` seeds."""
    there = {seed for portion in done for seed in range(portion.first, portion.last + 1)}
    starts = set(bucket_starts(seeds, cells))
    portions: list[SeedPortion] = []
    for seed in range(seeds):
        if seed in there:
            continue
        before = portions[-1] if portions else None
        if before is not None and before.last == seed - 1 and seed not in starts:
            portions[-1] = SeedPortion(before.first, seed)
        else:
            portions.append(SeedPortion(seed, seed))
    return portions


class RunPace(NamedTuple):
    """Mean duration of a run in seconds, and its mean number of rows, as measured so far."""

    seconds: float
    rows: float


class SweepJob(NamedTuple):
    """Portions that one Spark job runs, and its number of tasks. A task receives numbers of runs: runs are numbered
    cell by cell, and seed by seed in each cell. If tables are kept, it receives numbers of files instead."""

    portions: tuple[SeedPortion, ...]
    tasks: int
    files: int = 1
    """Files of each kept table and cell."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(seed for portion in self.portions for seed in range(portion.first, portion.last + 1))


def next_job(
    waiting: Sequence[SeedPortion], cells: int, cores: int, pace: RunPace | None, kept_rows: int | None = None
) -> SweepJob:
    """The next job. At least one portion must be waiting. `kept_rows` are the rows that a run gives to kept tables;
    0 if their number is unknown, None if no table is kept.

    If tables are kept, a job is a portion, and a task makes one file of each table: files have so many rows that a task
    can attack them, and are so many that a cluster has work. Cores must not show in files, so they do not count here.
    """
    taken, runs = 1, waiting[0].seeds * cells
    if kept_rows is not None:
        seeds = waiting[0].seeds
        files = min(seeds, max(-(-_KEPT_TASKS // cells), -(-seeds * kept_rows // _FILE_ROWS)))
        return SweepJob((waiting[0],), cells * files, files)
    if pace is not None:
        most = min(_JOB_S * cores / pace.seconds, _JOB_ROWS / pace.rows)
        while taken < len(waiting) and runs + waiting[taken].seeds * cells <= most:
            runs += waiting[taken].seeds * cells
            taken += 1
    # Several tasks for each core: cells differ in duration, and a core with light ones can take more.
    tasks = cores * _TASKS_PER_CORE
    if pace is not None:
        tasks = max(cores, min(tasks, round(runs * pace.seconds / _TASK_S)))
    return SweepJob(tuple(waiting[:taken]), min(runs, tasks))


BUCKET_SEEDS: Final = 20
"""Seeds of the first buckets."""
_SHARE: Final = 5
"""A later bucket has at most this part of the seeds before it."""
_PORTION_RUNS: Final = 100_000
"""Most runs of a portion of more than twenty seeds: this process holds its rows."""

SEEDS_MAX: Final = 1_000_000
_TASKS_PER_CORE: Final = 12
_TASK_S: Final = 0.5
"""Shorter tasks cost more than they balance."""
_JOB_S: Final = 10.0
_KEPT_TASKS: Final = 8
"""Least tasks of a job that keeps tables, if it has so many runs."""
_FILE_ROWS: Final = 1 << 24
"""Rows of a run's kept tables, over all runs of a file: some hundred megabytes."""
_JOB_ROWS: Final = 2_000_000
"""This process holds the rows of a job."""
