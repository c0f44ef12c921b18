"""Portions cover the seeds that are wanted, each once, and never cross the edge of a bucket."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.experiment import plan
from veilcast.lab.experiment.plan import BUCKET_SEEDS, RunPace, SeedPortion, SweepJob

CELLS = 20
SEEDS = st.integers(1, 5 * BUCKET_SEEDS)


@given(st.lists(SEEDS, max_size=4), SEEDS)
def test_whatever_was_done_before_each_seed_is_done_once(before: list[int], wanted: int) -> None:
    done: list[SeedPortion] = []
    for seeds in [*before, wanted]:
        done += plan.missing_portions(seeds, done, 11)
    seeds_done = [seed for portion in done for seed in range(portion.first, portion.last + 1)]
    assert sorted(seeds_done) == list(range(max([*before, wanted])))
    starts = set(plan.bucket_starts(5 * BUCKET_SEEDS, 11))
    assert all(starts.isdisjoint(range(portion.first + 1, portion.last + 1)) for portion in done)
    assert plan.missing_portions(wanted, done, 11) == []


def test_a_hole_is_filled_and_nothing_else() -> None:
    assert plan.missing_portions(40, [SeedPortion(0, 4), SeedPortion(20, 39)], 11) == [SeedPortion(5, 19)]


def test_a_hundred_seeds_are_five_files() -> None:
    portions = plan.missing_portions(100, [], CELLS)
    assert len(portions) == 5
    assert portions[1].stem == "seeds-000020-000039"


@pytest.mark.parametrize("cells", [1, 5, 11, 20, 24])
def test_a_million_seeds_are_less_than_a_thousand_files(cells: int) -> None:
    portions = plan.missing_portions(plan.SEEDS_MAX, [], cells)
    # Measures and an entry of the manifest for each; the first entry and the last, scores and verdicts.
    assert 2 * len(portions) + 4 < 1000
    assert max(portion.seeds for portion in portions) * cells <= plan._PORTION_RUNS


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_kill_loses_a_fifth_at_most_and_more_seeds_change_no_bucket(seeds: int, cells: int) -> None:
    starts = list(plan.bucket_starts(seeds, cells))
    assert starts == list(plan.bucket_starts(10**6, cells))[: len(starts)]
    for start, end in pairwise(starts):
        assert end - start == BUCKET_SEEDS or 5 * (end - start) <= start


PACES = st.none() | st.builds(RunPace, st.floats(1e-6, 1e4), st.floats(1, 1e6))


@given(st.integers(1, 50 * BUCKET_SEEDS), st.integers(1, 50), st.integers(1, 64), PACES)
def test_jobs_take_every_portion_once_and_in_order(seeds: int, cells: int, cores: int, pace: RunPace | None) -> None:
    waiting = plan.missing_portions(seeds, [], CELLS)
    taken: list[SeedPortion] = []
    while waiting:
        job = plan.next_job(waiting, cells, cores, pace)
        assert 1 <= job.tasks <= len(job.seeds) * cells
        taken += job.portions
        waiting = waiting[len(job.portions) :]
    assert taken == plan.missing_portions(seeds, [], CELLS)


def test_what_takes_long_is_cut_finely_a_portion_at_a_time() -> None:
    waiting = plan.missing_portions(200, [], CELLS)
    for pace in (None, RunPace(10.0, 30)):
        assert plan.next_job(waiting, 20, 2, pace) == SweepJob((waiting[0],), 24)
    assert plan.next_job(waiting, 1, 64, None) == SweepJob((waiting[0],), 20)


def test_short_runs_are_done_together_in_few_tasks() -> None:
    waiting = plan.missing_portions(200, [], CELLS)
    assert plan.next_job(waiting, 20, 2, RunPace(0.0005, 30)) == SweepJob(tuple(waiting), 4)
    assert plan.next_job(waiting, 20, 2, RunPace(0.00005, 30)) == SweepJob(tuple(waiting), 2)


def test_a_job_has_no_more_rows_than_this_process_may_hold() -> None:
    waiting = [SeedPortion(first, first + 19) for first in range(0, 1_000_000, 20)]
    rows = 30
    job = plan.next_job(waiting, 20, 2, RunPace(1e-9, rows))
    assert 0 <= plan._JOB_ROWS - len(job.seeds) * 20 * rows < BUCKET_SEEDS * 20 * rows


def test_files_of_kept_tables_give_a_cluster_work_and_fit_a_task_whatever_its_cores() -> None:
    waiting = plan.missing_portions(60, [], 2)
    assert waiting[0].seeds == 20
    for cores in (1, 64):
        # Nothing is known of the first runs: as few files as eight tasks need.
        assert plan.next_job(waiting, 2, cores, None, 0) == SweepJob((waiting[0],), 8, 4)
        assert plan.next_job(waiting, 63, cores, None, 0) == SweepJob((waiting[0],), 63, 1)
        # Runs with a quarter of a file's rows, and runs larger than a file.
        assert plan.next_job(waiting, 2, cores, RunPace(1.0, 40), 1 << 22) == SweepJob((waiting[0],), 10, 5)
        assert plan.next_job(waiting, 2, cores, RunPace(1.0, 40), 1 << 30) == SweepJob((waiting[0],), 40, 20)
