"""Calibration: do an attacker's probabilities mean what they say?

Of all nodes that an attacker holds to subscribe with a probability near p, a share p should. Nodes are put into bins of
about equally many by their probability; in each, what was said differs from what was so, and the mean of the
differences, by size, is the expected calibration error (Naeini and others 2015). It is never 0: in a bin of few nodes
chance alone makes a difference. What it comes to on the average if every probability were right is the floor, and only
an error well above it says that entropies of these probabilities are not to be believed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.measure.information import bins_of


class Calibration(NamedTuple):
    error: float
    floor: float
    excess: float
    """What was said less what was so, over all: above 0 for who suspects too many."""


def of_probabilities(said: NDArray[np.float64], positive: Mask, seed: int, *, draws: int = 200) -> Calibration:
    """Of one probability for each node, each about that node alone."""
    if not said.size or said.min() < 0 or said.max() > 1:
        raise ConfigError("there must be probabilities, and between 0 and 1")
    bins = bins_of(said)
    rng = np.random.default_rng(seed)
    by_chance = [_error(bins, said, rng.random(said.size) < said) for _ in range(draws)]
    return Calibration(_error(bins, said, positive), float(np.mean(by_chance)), float(said.mean() - positive.mean()))


def _error(bins: NDArray[np.int64], said: NDArray[np.float64], positive: Mask) -> float:
    return float(np.abs(np.bincount(bins, said - positive)).sum() / said.size)
