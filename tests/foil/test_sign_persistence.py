"""The law of signs: reversing moves reveal fakes with fair signs, and not those with fitted signs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from support.foil_generators import rank_of_truth, unevenness
from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.movers import MOVE_PAIRS_MIN, SignFlipMoves, SignPersistence
from veilcast.foil.generators.trajectory import Trajectories

RHO, K = -0.3, 3


def leaning(streams: int, steps: int, seed: int) -> npt.NDArray[np.float64]:
    """Moves of variance 1, each with a share of the last in it."""
    noise = np.random.default_rng(seed).standard_normal((streams, steps))
    for step in range(1, steps):
        noise[:, step] = RHO * noise[:, step - 1] + np.sqrt(1 - RHO**2) * noise[:, step]
    return noise


def found_by_turns(mover: SignFlipMoves) -> float:
    moves = leaning(3000, 40, 1)
    rng = np.random.default_rng(2)
    candidates, position = foil_series(Trajectories(K, mover), 500 + np.cumsum(moves, axis=1), rng)
    steps = np.diff(candidates, axis=1)
    products = (steps[:, 1:] * steps[:, :-1]).sum(axis=1)
    return unevenness(rank_of_truth(products, position[:, -1], rng), K + 1)


def test_a_fit_finds_the_sign_persistence_of_an_autoregression() -> None:
    lean = SignPersistence.fit(leaning(1, 20_000, 3)[0])
    assert lean.slope == pytest.approx(2 * RHO / (1 - RHO**2), rel=0.1)
    assert lean.constant == pytest.approx(0, abs=0.1)


def test_fair_signs_are_revealed_by_reverting_moves_and_fitted_ones_are_not() -> None:
    assert found_by_turns(SignFlipMoves()) > 30
    assert found_by_turns(SignFlipMoves(persistence=SignPersistence.fit(leaning(1, 20_000, 4)[0]))) < 4.5


def test_the_fitted_law_reverses_as_many_moves_as_the_history() -> None:
    moves = np.random.default_rng(5).standard_t(3, 3000)
    moves[1::3] = -np.sign(moves[::3]) * np.abs(moves[1::3])
    moves[::50] = 0
    lean = SignPersistence.fit(moves)
    before, now = moves[:-1], moves[1:]
    told = before * now != 0
    chance = lean.same_sign_probability(before, np.abs(now))[told]
    assert chance.sum() == pytest.approx(np.sum((before * now)[told] > 0), rel=1e-3)
    products = np.abs(before * now)[told]
    assert ((2 * chance - 1) * products).sum() == pytest.approx((before * now)[told].sum(), rel=1e-3)


def test_a_history_that_always_reverses_is_fitted_with_finite_numbers() -> None:
    lean = SignPersistence.fit(np.tile([1.0, -1.0], 50))
    assert lean.same_sign_probability(np.array([1.0]), np.array([1.0]))[0] < 0.01


def test_an_invalid_sign_persistence_is_refused() -> None:
    with pytest.raises(ConfigError):
        SignPersistence(np.nan, 0)
    for moves in (np.zeros(1000), np.ones(MOVE_PAIRS_MIN)):
        with pytest.raises(LocalError):
            SignPersistence.fit(moves)
