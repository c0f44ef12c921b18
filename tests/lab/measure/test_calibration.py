from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.measure.information import measure_calibration


def test_calibrated_probabilities_have_an_error_near_the_floor() -> None:
    rng = np.random.default_rng(1)
    said = rng.random(4000)
    found = measure_calibration(said, rng.random(4000) < said, 1)
    assert found.error < 1.6 * found.floor
    assert abs(found.excess) < 0.03


def test_exaggerated_probabilities_are_told_from_chance() -> None:
    """The planted fault: every probability is drawn away from a half, and the order of nodes stays as it is."""
    rng = np.random.default_rng(2)
    said = rng.random(4000)
    found = measure_calibration(np.where(said > 0.5, 1 - (1 - said) / 4, said / 4), rng.random(4000) < said, 1)
    assert found.error > 5 * found.floor


def test_suspecting_every_node_shows_as_excess() -> None:
    found = measure_calibration(np.full(100, 0.9), np.arange(100) < 10, 1)
    assert found.excess == pytest.approx(0.8)
    assert found.error == pytest.approx(0.8)


def test_certainties_that_are_right_have_no_error_and_no_floor() -> None:
    so = np.arange(50) % 3 == 0
    assert measure_calibration(so.astype(float), so, 1) == (0, 0, 0)


@pytest.mark.parametrize("said", [[], [-0.1], [1.2]])
def test_numbers_that_are_no_probabilities_are_refused(said: list[float]) -> None:
    with pytest.raises(ConfigError, match="probabilities"):
        measure_calibration(np.array(said), np.ones(len(said), np.bool_), 1)
