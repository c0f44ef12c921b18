from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.measure.relay_success import measure_order


def test_an_order_and_its_mirror_are_as_good() -> None:
    value = np.array([3, 1, 4, 1, 5])
    assert measure_order(value.astype(np.float64), value) == pytest.approx(1)
    assert measure_order(-value.astype(np.float64), value) == pytest.approx(1)


def test_places_that_are_all_one_tell_nothing() -> None:
    assert measure_order(np.zeros(4), np.arange(4)) == 0
    assert measure_order(np.arange(4.0), np.zeros(4, np.int64)) == 0


def test_one_pair_in_the_wrong_order_costs_something() -> None:
    assert measure_order(np.array([0.0, 2.0, 1.0, 3.0]), np.arange(4)) == pytest.approx(0.8)
