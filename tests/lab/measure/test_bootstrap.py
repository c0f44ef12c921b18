from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.measure.ranking import auc
from veilcast.lab.measure.strongest_attacker import by_run

Labelled = tuple[NDArray[np.float64], NDArray[np.bool_]]


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def test_ninety_five_of_a_hundred_intervals_hold_the_mean() -> None:
    rng = np.random.default_rng(1)
    held = [by_run(list(rng.exponential(1.0, 60)), mean, seed, draws=300).holds(1.0) for seed in range(200)]
    assert np.mean(held) == pytest.approx(0.93, abs=0.04)


def test_nodes_of_one_run_are_not_taken_for_independent() -> None:
    """Each run's scores are shifted together, so that half of the runs look well and half of them badly."""
    rng = np.random.default_rng(2)
    runs: list[Labelled] = []
    for number in range(20):
        positive = np.arange(200) < 100
        runs.append((rng.random(200) + (0.4 if number % 2 else -0.4) * positive, positive))

    def area(chosen: Sequence[Labelled]) -> float:
        return auc(np.concatenate([scores for scores, _ in chosen]), np.concatenate([labels for _, labels in chosen]))

    found = by_run(runs, area, 1, draws=200)
    assert found.holds(0.5)
    assert found.high - found.low > 0.15  # As if nodes were independent, it would be .04.


def test_who_looks_at_many_attackers_has_a_wider_interval() -> None:
    runs = list(np.random.default_rng(3).normal(size=50))
    one, many = by_run(runs, mean, 1), by_run(runs, mean, 1, miss=0.05 / 20)
    assert many.low < one.low < one.value == many.value < one.high < many.high
    assert by_run(runs, mean, 1) == one


def test_without_runs_there_is_no_interval() -> None:
    with pytest.raises(ConfigError, match="no runs"):
        by_run([], mean, 1)
