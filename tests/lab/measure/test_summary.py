from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from veilcast.lab.measure.summary import summarise, widening


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.randoms())
def test_the_order_of_the_values_does_not_show(values: list[float], rng: object) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert summarise(shuffled) == summarise(values)


def test_the_interval_is_students() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    found = summarise(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert found == pytest.approx((3.5, np.std(values, ddof=1), low, high, 4))


def test_of_a_hundred_intervals_95_hold_the_mean() -> None:
    rng = np.random.default_rng(1)
    found = [summarise(rng.normal(2.0, 1.0, 30)) for _ in range(1000)]
    assert np.mean([one.low <= 2.0 <= one.high for one in found]) == pytest.approx(0.95, abs=0.02)


def test_widened_intervals_hold_together() -> None:
    def hold(drawn: NDArray[np.float64], wider: float) -> bool:
        found = [summarise(column) for column in drawn.T]
        return all(abs(one.value) <= (one.high - one.value) * wider for one in found)

    rng = np.random.default_rng(2)
    runs = [rng.normal(size=(20, 8)) for _ in range(1500)]
    assert np.mean([hold(each, 1.0) for each in runs]) < 0.75
    assert np.mean([hold(each, widening(20, 8)) for each in runs]) == pytest.approx(0.95, abs=0.015)
    assert widening(20, 1) == widening(1, 8) == 1.0


def test_one_run_tells_nothing_of_the_spread() -> None:
    assert summarise([3.0]) == (3.0, inf, -inf, inf, 1)
