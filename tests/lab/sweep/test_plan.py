"""Portions cover the seeds that are wanted, each once, and never cross the edge of a bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.sweep import plan
from veilcast.lab.sweep.plan import BUCKET, Portion

SEEDS = st.integers(1, 5 * BUCKET)


@given(st.lists(SEEDS, max_size=4), SEEDS)
def test_whatever_was_done_before_each_seed_is_done_once(before: list[int], wanted: int) -> None:
    done: list[Portion] = []
    for seeds in [*before, wanted]:
        done += plan.missing(seeds, done)
    seeds_done = [seed for portion in done for seed in range(portion.first, portion.last + 1)]
    assert sorted(seeds_done) == list(range(max([*before, wanted])))
    assert all(portion.first // BUCKET == portion.last // BUCKET == portion.bucket for portion in done)
    assert plan.missing(wanted, done) == []


def test_a_hole_is_filled_and_nothing_else() -> None:
    assert plan.missing(40, [Portion(0, 4), Portion(20, 39)]) == [Portion(5, 19)]


def test_a_hundred_seeds_are_five_files() -> None:
    portions = plan.missing(100, [])
    assert len(portions) == 5
    assert portions[1].file == "seeds-000020-000039.parquet"
