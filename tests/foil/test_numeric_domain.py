"""The declared domain: impossible values are refused, and neither digits nor place reveal a fake."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.numeric_domain import DECIMALS_MAX, NumericDomain


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(0, 4))
def test_fakes_end_inside_the_domain_with_the_declared_decimals(fakes: list[float], decimals: int) -> None:
    period = NumericDomain(-3, 12, decimals)
    fitted = period.fit(np.array(fakes))
    assert np.array_equal(period.check(fitted), fitted)
    assert [float(f"{value:.{decimals}f}") for value in fitted] == fitted.tolist()


@given(st.floats(-1e6, 1e6), st.sampled_from([(-math.inf, 5.0), (5.0, math.inf), (-math.inf, math.inf), (0.0, 7.0)]))
def test_values_inside_stay_and_values_outside_are_reflected(fake: float, ends: tuple[float, float]) -> None:
    low, high = ends
    fitted = float(NumericDomain(low, high).fit(np.array([fake]))[0])
    assert low <= fitted <= high
    if low <= fake <= high:
        assert fitted == fake
    elif math.isinf(low) or math.isinf(high):
        assert fitted == pytest.approx(2 * 5 - fake)


def test_a_value_that_cannot_be_published_is_refused() -> None:
    period = NumericDomain(0, 10, decimals=1)
    period.check(np.array([0, 0.1, 0.3, 10]))
    for wrong in (-0.1, 10.1, 0.15, math.nan, math.inf):
        with pytest.raises(LocalError):
            period.check(np.array([1, wrong]))


def test_an_invalid_domain_is_refused() -> None:
    for low, high, decimals in ((1, 1, None), (2, 1, None), (math.nan, 1, None), (0, 1, -1), (0, 1, DECIMALS_MAX + 1)):
        with pytest.raises(ConfigError):
            NumericDomain(low, high, decimals)
    with pytest.raises(ConfigError):
        NumericDomain(0.05, 1, decimals=1)


def test_an_overflowing_law_is_reported() -> None:
    with pytest.raises(LocalError):
        NumericDomain().fit(np.array([math.inf]))
