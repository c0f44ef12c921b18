from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.measure.information import measure_posterior


def test_a_uniform_posterior_has_the_full_entropy() -> None:
    assert measure_posterior(np.full(8, 3.0)) == pytest.approx(
        {"entropy": 3, "min_entropy": 3, "effective_size": 8, "possible": 8, "degree": 1}
    )


def test_a_certain_posterior_has_no_entropy() -> None:
    assert measure_posterior(np.array([0.0, 2.0, 0.0])) == {
        "entropy": 0,
        "min_entropy": 0,
        "effective_size": 1,
        "possible": 1,
        "degree": 0,
    }


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=20))
def test_the_best_guess_is_never_less_than_the_mean_says(weights: list[float]) -> None:
    found = measure_posterior(np.array(weights))
    assert found["min_entropy"] <= found["entropy"] + 1e-9 <= np.log2(len(weights)) + 2e-9
    assert 0 <= found["degree"] <= 1 + 1e-9


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], []])
def test_a_posterior_without_probabilities_is_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="probabilities"):
        measure_posterior(np.array(weights))
