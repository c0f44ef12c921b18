"""Round numbers, and an attacker that trains on a past that it foiled itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generator import Generator, foiled
from veilcast.foil.moves import Gaussian
from veilcast.foil.signflip import SignFlip
from veilcast.foil.span import Span
from veilcast.foil.trajectory import Trajectories
from veilcast.lab.attack.foil_attackers import ATTACKERS
from veilcast.lab.attack.foil_endings import counted
from veilcast.lab.attack.foil_model import Model, Numbers
from veilcast.lab.attack.foil_trained import STEPS_MIN, fit
from veilcast.lab.measure.foiling import indistinguishability, likeliest

STREAMS, STEPS, K = 600, 60, 3
ERROR = (0.25 * 0.75 / STREAMS) ** 0.5
CENTS = Span(decimals=0)


def prices(seed: int, rounded: float) -> Numbers:
    """Walks in cents that, at that share of steps, are quoted at full tens."""
    rng = np.random.default_rng(seed)
    walk = 50_000 + np.cumsum(20 * rng.standard_normal((STREAMS, STEPS)), axis=1)
    unit = np.where(rng.random(walk.shape) < rounded, 10, 1)
    return np.round(walk / unit) * unit


def reached(name: str, values: Numbers, generator: Generator[Any, np.float64], model: Model) -> float:
    candidates, position = foiled(generator, values, np.random.default_rng(3))
    return float(indistinguishability(likeliest(ATTACKERS[name].score(candidates, model)), position).mean())


def learnt(generator: Generator[Any, np.float64], seed: int, rounded: float) -> Model:
    candidates, position = foiled(generator, prices(seed, rounded), np.random.default_rng(seed))
    return Model(fitted=fit(candidates, position[:, 0]))


def test_round_prices_stand_out_among_fakes_that_copy_moves() -> None:
    values, flips = prices(1, 0.3), Trajectories(K, SignFlip(), CENTS)
    model = Model(endings=counted(prices(2, 0.3)))
    assert reached("endings", values, flips, model) > 0.5
    assert reached("endings", prices(1, 0), flips, model) == pytest.approx(0.25, abs=3.5 * ERROR)


def test_cells_that_are_wider_than_what_is_rounded_to_show_no_ending() -> None:
    flips = Trajectories(K, SignFlip(), CENTS)
    past, _ = foiled(flips, prices(2, 0.3), np.random.default_rng(2))
    candidates, position = foiled(flips, prices(1, 0.3), np.random.default_rng(3))
    scores = ATTACKERS["endings"].score(np.floor(candidates / 32), Model(endings=counted(np.floor(past / 32))))
    assert indistinguishability(likeliest(scores), position).mean() < 0.25 + 3.5 * ERROR


def test_training_finds_what_is_wrong_with_a_law_and_nothing_in_the_right_one() -> None:
    wrong, right = Trajectories(K, Gaussian(0, 15), CENTS), Trajectories(K, Gaussian(0, 20), CENTS)
    assert reached("trained", prices(1, 0), wrong, learnt(wrong, 2, 0)) > 0.8
    assert reached("trained", prices(1, 0), right, learnt(right, 2, 0)) == pytest.approx(0.25, abs=3.5 * ERROR)
    flips = Trajectories(K, SignFlip(), CENTS)
    assert reached("trained", prices(1, 0.3), flips, learnt(flips, 2, 0.3)) > 0.4, "it knows round prices, too"


def test_what_cannot_be_trained_or_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="smallest unit"):
        ATTACKERS["endings"].score(np.full((1, 2, 2), 0.5), Model(endings=np.full(10, 0.1)))
    with pytest.raises(ConfigError, match="brings what it was trained to"):
        ATTACKERS["trained"].score(np.zeros((1, STEPS_MIN, 2)), Model(fitted=3))
    with pytest.raises(ConfigError, match=f"{STEPS_MIN} steps"):
        fit(np.zeros((1, STEPS_MIN - 1, 2)), np.zeros(1, np.int64))
    with pytest.raises(ConfigError, match="a slot"):
        fit(np.zeros((2, STEPS_MIN, 2)), np.zeros(1, np.int64))


def test_streams_that_never_move_are_no_matter() -> None:
    still = np.zeros((5, STEPS_MIN, 3))
    score = ATTACKERS["trained"].score(still, Model(fitted=fit(still, np.zeros(5, np.int64))))
    assert score == pytest.approx(1 / 3)
