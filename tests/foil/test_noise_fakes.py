"""Noise and windows: Table I's readings, the truth in the centre of its fakes, and a centre elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from support.foil_generators import rank_of_truth, unevenness
from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import Generator, foil_series
from veilcast.foil.generators.noise import READINGS, NoiseFakes
from veilcast.foil.generators.window import WindowFakes

STREAMS = 20_000


def medoid(generator: Generator[Any, np.float64], seed: int) -> float:
    """How often the candidate next to the mean of all is the truth."""
    rng = np.random.default_rng(seed)
    candidates, position = foil_series(generator, np.full((STREAMS, 1), 500.0), rng)
    distance = np.abs(candidates[:, 0] - candidates[:, 0].mean(axis=1, keepdims=True))
    return float(np.mean(rank_of_truth(distance, position[:, 0], rng) == 0))


@pytest.mark.parametrize(("reading", "price"), [("second", 615), ("minute", 79), ("variance", 619)])
def test_a_reading_of_table_one_gives_the_published_deviation_at_its_price(reading: str, price: float) -> None:
    """Google was at 439 to 742 in that year."""
    deviation = float(NoiseFakes.as_published(1, reading).deviation(np.array([price]))[0])
    assert deviation * math.sqrt(2 / math.pi) == pytest.approx(0.0131, rel=0.01)


def test_a_trading_minute_is_the_longest_step() -> None:
    assert NoiseFakes.as_published(1, "trading-minute").deviation(np.array([500.0]))[0] == pytest.approx(
        0.239, abs=0.001
    )
    assert set(READINGS) == {"second", "minute", "trading-minute", "variance"}


@pytest.mark.parametrize(("factor", "published"), [(1, 0.0131), (10, 0.0414), (50, 0.093), (100, 0.1314)])
def test_the_mean_deviation_of_fakes_is_that_of_table_one(factor: float, published: float) -> None:
    """Four rows of five. The fifth, 0.0509 for a factor of 25, is that of 15: it does not fit the others."""
    rng = np.random.default_rng(1)
    values = np.full((STREAMS, 1), 615.0)
    candidates, position = foil_series(NoiseFakes.as_published(1, "second", factor), values, rng)
    fakes = candidates[np.arange(STREAMS), 0, 1 - position[:, 0]]
    assert np.abs(fakes - 615).mean() == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize(("k", "found"), [(1, 0.5), (2, 0.5), (3, 0.43), (5, 0.36), (10, 0.28)])
def test_the_truth_is_the_centre_of_its_own_noise(k: int, found: float) -> None:
    assert medoid(NoiseFakes(k, 0.016), k) == pytest.approx(found, abs=0.015)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10])
def test_in_a_window_the_truth_is_not_nearer_to_the_centre_than_the_fakes(k: int) -> None:
    error = math.sqrt(k) / (k + 1) / math.sqrt(STREAMS)
    assert abs(medoid(WindowFakes(k, 0.016), k) - 1 / (k + 1)) < 4 * error


def test_in_a_window_the_truth_has_every_rank_equally_often() -> None:
    rng = np.random.default_rng(2)
    candidates, position = foil_series(WindowFakes(4, 1.0), np.full((STREAMS, 1), 500.0), rng)
    assert unevenness(rank_of_truth(candidates[:, 0], position[:, 0], rng), 5) < 4.5
    noisy, position = foil_series(NoiseFakes(4, 1.0), np.full((STREAMS, 1), 500.0), rng)
    assert unevenness(rank_of_truth(noisy[:, 0], position[:, 0], rng), 5) > 20, "and the measure finds it where it is"


def test_invalid_noise_is_refused() -> None:
    for scale, power in ((0.0, 0), (-1.0, 0), (math.nan, 0), (math.inf, 1), (1.0, 3)):
        with pytest.raises(ConfigError):
            NoiseFakes(1, scale, power)
    for deviation in (0.0, math.nan):
        with pytest.raises(ConfigError):
            WindowFakes(1, deviation)
    with pytest.raises(ConfigError):
        NoiseFakes.as_published(1, "hour")
    rng = np.random.default_rng(3)
    with pytest.raises(LocalError):
        NoiseFakes(1, 0.1, power=1).next(1, np.zeros(1), rng)
