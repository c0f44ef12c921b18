"""Numbers are short, say their sign where it matters, and claim no precision that is not there."""

from __future__ import annotations

import math

import pytest

from veilcast.lab.report.number_format import (
    format_duration,
    format_interval,
    format_like,
    format_number,
    format_signed,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (0.76432, "0.764"),
        (0.9, "0.9"),
        (141.4, "141"),
        (12345678.0, "12,345,678"),
        (-0.0312, "\u22120.0312"),
        (1e-7, "1.00e\u221207"),
        (math.nan, "\u2013"),
        (math.inf, "\u2013"),
    ],
)
def test_a_number_has_three_digits_that_matter(value: float, written: str) -> None:
    assert format_number(value) == written


def test_an_interval_is_rounded_as_its_value_is() -> None:
    assert format_interval(0.7984, 0.79, 0.8066) == "[0.790, 0.807]"
    assert format_interval(289.31, 285.0, 293.62) == "[285.0, 293.6]"
    assert format_interval(640.0, 480.0, 1000.0) == "[480, 1,000]"
    assert format_interval(0.5, math.nan, 1.0) == ""
    assert format_interval(0.5, 0.5, 0.5) == ""


def test_a_difference_says_its_direction_unless_it_rounds_to_nothing() -> None:
    assert format_signed(0.011, 0.798) == "+0.011"
    assert format_signed(-0.156, 0.134) == "\u22120.156"
    assert format_signed(-0.00001, 0.134) == "0.000"
    assert format_signed(math.nan, 1.0) == "\u2013"


def test_values_of_a_row_have_the_same_decimals() -> None:
    assert format_like(0.9, 0.9371) == "0.900"
    assert format_like(1.0, math.nan) == "1"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.24, "0.2 s"), (59.94, "59.9 s"), (119.7, "2 min 0 s"), (3725.0, "1 h 2 min")]
)
def test_a_duration_reads_as_one_says_it(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
