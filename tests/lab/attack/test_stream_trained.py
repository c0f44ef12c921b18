"""Round numbers, and an attacker that trains on a past that it foiled itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import Generator, foil_series
from veilcast.foil.generators.movers import GaussianMoves, SignFlipMoves
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.many_steps import count_endings
from veilcast.lab.attack.stream.model import Numbers, StreamModel
from veilcast.lab.attack.stream.trained import STEPS_MIN, fit_logit
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates

STREAMS, STEPS, K = 600, 60, 3
ERROR = (0.25 * 0.75 / STREAMS) ** 0.5
CENTS = NumericDomain(decimals=0)


def prices(seed: int, rounded: float) -> Numbers:
    """Walks in cents that, at that share of steps, are quoted at full tens."""
    rng = np.random.default_rng(seed)
    walk = 50_000 + np.cumsum(20 * rng.standard_normal((STREAMS, STEPS)), axis=1)
    unit = np.where(rng.random(walk.shape) < rounded, 10, 1)
    return np.round(walk / unit) * unit


def reached(name: str, values: Numbers, generator: Generator[Any, np.float64], model: StreamModel) -> float:
    candidates, position = foil_series(generator, values, np.random.default_rng(3))
    return float(indistinguishability(likeliest_candidates(score_candidates(name, candidates, model)), position).mean())


def learnt(generator: Generator[Any, np.float64], seed: int, rounded: float) -> StreamModel:
    candidates, position = foil_series(generator, prices(seed, rounded), np.random.default_rng(seed))
    return StreamModel(fitted=fit_logit(candidates, position[:, 0]))


def test_round_prices_stand_out_among_fakes_that_copy_moves() -> None:
    values, flips = prices(1, 0.3), Trajectories(K, SignFlipMoves(), CENTS)
    model = StreamModel(endings=count_endings(prices(2, 0.3)))
    assert reached("endings", values, flips, model) > 0.5
    assert reached("endings", prices(1, 0), flips, model) == pytest.approx(0.25, abs=3.5 * ERROR)


def test_cells_that_are_wider_than_what_is_rounded_to_show_no_ending() -> None:
    flips = Trajectories(K, SignFlipMoves(), CENTS)
    past, _ = foil_series(flips, prices(2, 0.3), np.random.default_rng(2))
    candidates, position = foil_series(flips, prices(1, 0.3), np.random.default_rng(3))
    scores = score_candidates(
        "endings", np.floor(candidates / 32), StreamModel(endings=count_endings(np.floor(past / 32)))
    )
    assert indistinguishability(likeliest_candidates(scores), position).mean() < 0.25 + 3.5 * ERROR


def test_training_finds_what_is_wrong_with_a_law_and_nothing_in_the_right_one() -> None:
    wrong, right = Trajectories(K, GaussianMoves(0, 15), CENTS), Trajectories(K, GaussianMoves(0, 20), CENTS)
    assert reached("trained", prices(1, 0), wrong, learnt(wrong, 2, 0)) > 0.8
    assert reached("trained", prices(1, 0), right, learnt(right, 2, 0)) == pytest.approx(0.25, abs=3.5 * ERROR)
    flips = Trajectories(K, SignFlipMoves(), CENTS)
    assert reached("trained", prices(1, 0.3), flips, learnt(flips, 2, 0.3)) > 0.4, "it knows round prices, too"


def test_untrainable_or_unreadable_streams_are_refused() -> None:
    with pytest.raises(ConfigError, match="smallest unit"):
        score_candidates("endings", np.full((1, 2, 2), 0.5), StreamModel(endings=np.full(10, 0.1)))
    with pytest.raises(ConfigError, match="brings what it was trained to"):
        score_candidates("trained", np.zeros((1, STEPS_MIN, 2)), StreamModel(fitted=3))
    with pytest.raises(ConfigError, match=f"{STEPS_MIN} steps"):
        fit_logit(np.zeros((1, STEPS_MIN - 1, 2)), np.zeros(1, np.int64))
    with pytest.raises(ConfigError, match="a slot"):
        fit_logit(np.zeros((2, STEPS_MIN, 2)), np.zeros(1, np.int64))


def test_constant_streams_are_scored() -> None:
    still = np.zeros((5, STEPS_MIN, 3))
    score = score_candidates("trained", still, StreamModel(fitted=fit_logit(still, np.zeros(5, np.int64))))
    assert score == pytest.approx(1 / 3)
