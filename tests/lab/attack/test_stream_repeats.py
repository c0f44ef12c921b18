"""Repeated values: lasting values among fresh fakes, and cached fakes that return with their value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.categories import BucketFakes, Pmf
from veilcast.foil.random_source import IntArray
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import StreamModel
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates
from veilcast.lab.models import repeated_values

PMF = Pmf(1 / np.arange(3.0, 67.0))
STREAMS, STEPS = 12, 800


def lasting(keep: float, seed: int) -> IntArray:
    """Values that stay with this probability at each step, and are otherwise drawn again."""
    rng = np.random.default_rng(seed)
    values, stay = PMF.codes_at(rng.random((STREAMS, STEPS))), rng.random((STREAMS, STEPS)) < keep
    for step in range(1, STEPS):
        values[:, step] = np.where(stay[:, step], values[:, step - 1], values[:, step])
    return values


def reached(name: str, generator: BucketFakes, keep: float) -> float:
    codes, position = foil_series(generator, lasting(keep, 1), np.random.default_rng(2))
    score = score_candidates(name, codes.astype(np.float64), StreamModel(pmf=PMF.p))
    return float(indistinguishability(likeliest_candidates(score), position).mean())


def test_a_lasting_value_is_what_neighbouring_sets_share() -> None:
    assert reached("intersection", BucketFakes(3, PMF, "fractional", cache=0), 0.8) > 0.6
    assert reached("intersection", BucketFakes(1, PMF, "fractional", cache=0), 0.8) > 0.8


def test_cached_fakes_come_back_as_often_as_their_value_does() -> None:
    assert reached("repeats", BucketFakes(3, PMF, "fractional", cache=1000), 0) > 0.55
    assert reached("repeats", BucketFakes(3, PMF, "fractional", cache=1000, match="any"), 0) > 0.3


def test_values_of_few_sets_are_true_in_a_new_one() -> None:
    generator = BucketFakes(3, PMF, "fractional", cache=1000)
    codes, position = foil_series(generator, lasting(0, 1), np.random.default_rng(2))
    candidates = codes.astype(np.float64)
    score = score_candidates("newcomer", candidates, StreamModel(pmf=PMF.p))
    assert indistinguishability(likeliest_candidates(score), position).mean() > 0.27


@pytest.mark.parametrize("name", ["intersection", "repeats", "newcomer"])
@pytest.mark.parametrize(("cache", "keep"), [(0, 0.0), (1, 0.0), (1, 0.8)])
def test_a_queue_of_one_leaves_no_more_than_a_guess(name: str, cache: int, keep: float) -> None:
    """Or without any, where nothing lasts. A set that stays is one guess for all its steps, so errors are larger."""
    assert reached(name, BucketFakes(3, PMF, "fractional", cache=cache), keep) < 0.28


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=12))
def test_counts_are_those_of_a_plain_loop(rows: list[list[int]]) -> None:
    codes = np.array([rows, rows[::-1]])
    stays = repeated_values.run_lengths(codes, 4)
    found, sets = np.unique(repeated_values.set_fingerprints(codes), return_inverse=True)
    count, ago = repeated_values.set_returns(sets.reshape(2, -1), len(found))
    times = repeated_values.earlier_appearances(codes, count == 0, 4)
    for stream, steps in enumerate((rows, rows[::-1])):
        seen = [frozenset((value, row.count(value)) for value in row) for row in steps]
        for step, row in enumerate(steps):
            earlier = seen[:step]
            assert count[stream, step] == earlier.count(seen[step])
            assert ago[stream, step] == (step - earlier.index(seen[step]) if seen[step] in earlier else 0)
            for slot, value in enumerate(row):
                first, last = step, step
                while first > 0 and value in steps[first - 1]:
                    first -= 1
                while last + 1 < len(steps) and value in steps[last + 1]:
                    last += 1
                assert stays[stream, step, slot] == last - first + 1
                different = {one for one in earlier if value in dict(one)}
                assert times[stream, step, slot] == sum(dict(one)[value] for one in different)


def test_candidates_that_are_no_codes_are_refused() -> None:
    with pytest.raises(ConfigError, match="codes from 0 to 63"):
        score_candidates("repeats", np.full((1, 1, 2), 0.5), StreamModel(pmf=PMF.p))
