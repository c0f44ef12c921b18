"""Ticks are few, rise, lie at round numbers, and reach over all there is to show."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from veilcast.lab.report import axes

NUMBERS = st.lists(st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-6), min_size=1, max_size=12)
POSITIVE = st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=12)


@given(NUMBERS, st.integers(3, 10))
def test_an_upright_axis_holds_every_value_between_its_first_and_last_tick(values: list[float], wanted: int) -> None:
    axis = axes.vertical_axis(values, log=False, wanted=wanted)
    ticks = [tick.value for tick in axis.ticks]
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= wanted + 2
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in values)


@given(POSITIVE, st.integers(3, 10))
def test_a_logarithmic_axis_holds_every_value(values: list[float], wanted: int) -> None:
    axis = axes.vertical_axis(values, log=True, wanted=wanted)
    assert len(axis.ticks) <= 3 * wanted
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in values)


@given(NUMBERS)
def test_labels_of_ticks_differ(values: list[float]) -> None:
    assume(max(values) - min(values) > 1e-3 * max(map(abs, values)))
    for axis in (axes.vertical_axis(values, log=False, wanted=6), axes.horizontal_axis(values, log=False, room=80)):
        texts = [tick.text for tick in axis.ticks]
        assert len(set(texts)) == len(texts)


@given(POSITIVE, st.booleans(), st.integers(30, 110))
def test_labels_along_the_horizontal_axis_do_not_run_into_one_another(
    values: list[float], log: bool, room: int
) -> None:
    axis = axes.horizontal_axis(values, log=log, room=room)
    ends = [(axis.place(tick.value) * room, len(tick.text) / 2) for tick in axis.ticks]
    assert ends
    assert all(-1e-6 <= at <= room + 1e-6 for at, _ in ends)
    assert all(b - m > a + n for (a, n), (b, m) in itertools.pairwise(ends))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.31, 0.98], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.91, 0.99], ["0.90", "0.92", "0.94", "0.96", "0.98", "1.00"]),
        ([141.0, 482.0], ["0", "100", "200", "300", "400", "500"]),
        ([-3.0, 3.0], ["\u22123", "\u22122", "\u22121", "0", "1", "2", "3"]),
        ([0.0, 1.0], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_ticks_lie_where_a_person_would_put_them(values: list[float], texts: list[str]) -> None:
    assert [tick.text for tick in axes.vertical_axis(values, log=False, wanted=6).ticks] == texts


def test_powers_of_ten_are_written_in_full_or_raised_and_never_both_ways() -> None:
    assert [tick.text for tick in axes.vertical_axis([200, 4e5], log=True, wanted=6).ticks][-1] == "1,000,000"
    assert [tick.text for tick in axes.vertical_axis([1, 4e8], log=True, wanted=10).ticks][:2] == [
        "10\u2070",
        "10\u00b9",
    ]
    assert [tick.text for tick in axes.vertical_axis([2, 40], log=True, wanted=6).ticks] == ["2", "5", "10", "20", "50"]


def test_few_measured_values_are_the_ticks() -> None:
    assert [tick.text for tick in axes.horizontal_axis([2, 4, 8, 16], log=False, room=90).ticks] == [
        "2",
        "4",
        "8",
        "16",
    ]
    assert [tick.text for tick in axes.horizontal_axis([0.0, 0.5, 1.0], log=False, room=90).ticks] == [
        "0.0",
        "0.5",
        "1.0",
    ]
    many = [float(value) for value in range(0, 1001, 10)]
    assert len(axes.horizontal_axis(many, log=False, room=90).ticks) <= 12


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values",
    [[], [5.0], [5.0, 5.0], [0.0], [math.nan, math.inf], [-1.0], [1e308, -1e308], [5e-324, 1.0], [1e9, 1e9 + 1e-6]],
)
def test_there_is_an_axis_whatever_there_is_to_show(values: list[float], log: bool) -> None:
    for axis in (axes.horizontal_axis(values, log=log, room=60), axes.vertical_axis(values, log=log, wanted=5)):
        assert axis.ticks
        assert axis.low < axis.high
        assert not axis.shows(math.nan)
        assert axis.shows(0.0) != log
