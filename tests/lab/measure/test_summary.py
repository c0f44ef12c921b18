from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from veilcast.lab import tables
from veilcast.lab.measure.summary import summarise, summarise_table, widening
from veilcast.lab.tables import MeasureRow


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


MEASURES = st.builds(
    MeasureRow,
    st.just("e"),
    st.sampled_from(["a", "b"]),
    st.integers(0, 9),
    st.sampled_from(["", "leaf"]),
    st.just("auc"),
    st.sampled_from([0.0, 1.0]),
    st.floats(-1e300, 1e300),
)


@given(st.lists(MEASURES, max_size=60))
def test_a_table_has_the_summary_of_each_of_its_scores(rows: list[MeasureRow]) -> None:
    values: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        values.setdefault((row.experiment, row.cell, row.attack, row.metric, row.step), []).append(row.value)
    try:
        wanted = [(*key, *summarise(values[key])) for key in sorted(values)]
    except OverflowError:
        return
    found = summarise_table(tables.from_rows(MeasureRow, rows)).to_pylist()
    assert [tuple(row.values()) for row in found] == wanted
