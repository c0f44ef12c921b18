"""The nearest neighbour's bound: nothing to tell gives a half, and a known overlap its least error."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import pytest

from veilcast.errors import LocalError
from veilcast.lab.measure.nearest_neighbours import least_error, nearest_neighbour_error


def drawn(seed: int, apart: float, many: int = 2000) -> float:
    """The error where one feature of the two kinds differs by so many standard deviations, and another says nothing."""
    rng = np.random.default_rng(seed)
    having = rng.random(2 * many) < 0.3
    features = np.column_stack([rng.normal(apart * having, 1), np.full(2 * many, 7.0)])
    return nearest_neighbour_error(features[:many], having[:many], features[many:], having[many:])


def test_features_that_say_nothing_give_a_half() -> None:
    """The null control."""
    assert abs(np.mean([drawn(seed, 0.0) for seed in range(5)]) - 0.5) < 0.02


def test_features_that_say_everything_give_no_error() -> None:
    """The positive control."""
    assert drawn(1, 20.0) == 0


@pytest.mark.parametrize("apart", [1.0, 2.0, 3.0])
def test_the_bound_is_below_the_least_error_and_the_neighbour_above(apart: float) -> None:
    least = (1 - erf(apart / 2 / sqrt(2))) / 2
    error = float(np.mean([drawn(seed, apart) for seed in range(5)]))
    assert least_error(error) - 0.02 < least < error < 2 * least * (1 - least) + 0.02


def test_a_feature_counts_by_its_spread_and_not_by_its_unit() -> None:
    rng = np.random.default_rng(1)
    having = np.arange(400) % 2 == 0
    features = np.column_stack([rng.normal(having, 1), rng.normal(0, 1, 400)])
    small = nearest_neighbour_error(features[:200], having[:200], features[200:], having[200:])
    scaled = features * [1.0, 1e6]
    assert small == nearest_neighbour_error(scaled[:200], having[:200], scaled[200:], having[200:])


def test_equal_distances_count_half() -> None:
    same = np.zeros((4, 2))
    having = np.array([True, False, True, False])
    assert nearest_neighbour_error(same, having, same, having) == 0.5


def test_the_bound_is_a_half_at_the_most() -> None:
    assert least_error(0.0) == 0
    assert least_error(0.5) == least_error(0.6) == 0.5


def test_one_kind_alone_is_refused() -> None:
    with pytest.raises(LocalError):
        nearest_neighbour_error(np.zeros((2, 1)), np.array([True, True]), np.zeros((1, 1)), np.array([True]))
