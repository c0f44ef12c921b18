"""Cells over a generator: the broker's view is coarse, and lineages go on beneath it."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.celled import Celled
from veilcast.foil.generator import foiled
from veilcast.foil.signflip import SignFlip
from veilcast.foil.trajectory import Trajectories


def test_cells_are_those_of_what_is_foiled_beneath() -> None:
    values = 500 + np.cumsum(np.random.default_rng(1).standard_normal((50, 30)), axis=1)
    fine, position = foiled(Trajectories(3, SignFlip()), values, np.random.default_rng(2))
    seen, same = foiled(Celled(Trajectories(3, SignFlip()), 2.5, low=100), values, np.random.default_rng(2))
    assert np.array_equal(position, same)
    assert np.array_equal(seen, np.floor((fine - 100) / 2.5))
    truth = np.take_along_axis(seen, position[:, :, None], axis=2)[:, :, 0]
    assert np.array_equal(truth, np.floor((values - 100) / 2.5))


@pytest.mark.parametrize(("width", "low"), [(0, 0), (np.inf, 0), (1, np.nan)])
def test_cells_that_cannot_be_are_refused(width: float, low: float) -> None:
    with pytest.raises(ConfigError):
        Celled(Trajectories(3, SignFlip()), width, low)
