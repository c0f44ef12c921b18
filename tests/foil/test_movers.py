"""The laws of moves: each draws its stated law, and a fit recovers it."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.movers import (
    STUDENT_FREEDOMS,
    BlockMoves,
    GaussianMoves,
    Mover,
    RevertingMoves,
    SignFlipMoves,
    StudentMoves,
    apply_moves,
    fit_student_t,
    geometric_brownian,
    moves_between,
)
from veilcast.foil.random_source import RandomSource, SecretRandom

SIZE = (4000, 5)


def one_move(mover: Mover[Any], start: float, rng: RandomSource) -> npt.NDArray[np.float64]:
    here = np.full(SIZE, start)
    _, there = mover.move(mover.begin(*SIZE, rng), here, here[:, 0], here[:, 0], rng)
    return there


@pytest.mark.parametrize(
    "rng", [np.random.default_rng(1), SecretRandom(random.Random(1).randbytes)], ids=["np", "secret"]
)
def test_moves_have_the_quantiles_of_their_law(rng: RandomSource) -> None:
    """Of Student's t with 3 degrees of freedom, 75 % lie below .7649 and 97.5 % below 3.1824."""
    for mover, quartile, far in (
        (GaussianMoves(2, 3), 2 + 3 * 0.6745, 2 + 3 * 1.96),
        (StudentMoves(2, 3, 3), 2 + 3 * 0.7649, 2 + 3 * 3.1824),
    ):
        moves = one_move(mover, 0, rng)
        assert np.mean(moves < 2) == pytest.approx(0.5, abs=0.015)
        assert np.mean(moves < quartile) == pytest.approx(0.75, abs=0.015)
        assert np.mean(moves < far) == pytest.approx(0.975, abs=0.005)


def test_brownian_motion_grows_by_its_rate_and_never_falls_below_zero() -> None:
    there = one_move(geometric_brownian(0.12, 0.15, 1.0), 100, np.random.default_rng(2))
    assert there.mean() == pytest.approx(100 * math.exp(0.12), rel=0.01)
    assert np.log(there).std() == pytest.approx(0.15, rel=0.02)
    assert (one_move(geometric_brownian(0, 40, 1.0), 100, np.random.default_rng(2)) > 0).all()


def test_blocks_repeat_the_history_in_order() -> None:
    history = np.arange(1.0, 101.0)
    blocks = BlockMoves(history, 10)
    rng = np.random.default_rng(3)
    memory, values, moves = blocks.begin(50, 4, rng), np.zeros((50, 4)), []
    for _ in range(40):
        memory, there = blocks.move(memory, values, values[:, 0], values[:, 0], rng)
        moves.append(there - values)
        values = there
    steps = np.round(np.diff(np.stack(moves), axis=0) % 100)
    assert np.mean(steps == 1) == pytest.approx(0.9, abs=0.01), "nine of ten go on where the last one was"
    ends = np.argmax(steps[:10] != 1, axis=0)
    assert len(np.unique(ends)) > 5, "and blocks do not end all at once"


def test_a_reverting_law_keeps_its_mean_and_spread() -> None:
    law, rng = RevertingMoves(10, 0.8, 0.6), np.random.default_rng(4)
    values = np.full(SIZE, 10.0)
    for _ in range(40):
        _, values = law.move(None, values, values[:, 0], values[:, 0], rng)
    assert values.mean() == pytest.approx(10, abs=0.05)
    assert values.std() == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("freedom", [3.0, 5.0, 12.0])
def test_a_fit_finds_the_law_that_moves_were_drawn_from(freedom: float) -> None:
    moves = 0.1 + 2 * np.random.default_rng(5).standard_t(freedom, 8000)
    fit = fit_student_t(moves, relative=True)
    assert fit.mean == pytest.approx(0.1, abs=0.1)
    assert fit.scale == pytest.approx(2, rel=0.06)
    near = STUDENT_FREEDOMS.index(freedom)
    assert fit.freedom in STUDENT_FREEDOMS[near - 1 : near + 2]
    assert fit.relative


def test_a_series_that_mostly_rests_is_fitted_with_a_scale_above_zero() -> None:
    moves = np.zeros(1000)
    moves[::50] = 1
    fit = fit_student_t(moves, relative=False)
    assert 0 < fit.scale < 0.01


def test_the_moves_of_a_history_reproduce_its_values() -> None:
    series = np.array([1.0, 2.0, 1.5, 3.0])
    for relative in (False, True):
        moves = moves_between(series, relative=relative)
        assert apply_moves(series[:-1], moves, relative) == pytest.approx(series[1:])


def test_an_uninformative_history_is_refused() -> None:
    for series, relative in (([1, 2], False), ([1, 1, 1], False), ([1, 2, np.nan], False), ([1, -1, 2], True)):
        with pytest.raises(LocalError):
            moves_between(np.array(series, dtype=np.float64), relative=relative)
    with pytest.raises(LocalError):
        moves_between(np.ones((3, 3)), relative=False)


def test_an_invalid_law_is_refused() -> None:
    history = np.arange(5.0)
    for make in (
        lambda: GaussianMoves(0, 0),
        lambda: GaussianMoves(math.nan, 1),
        lambda: StudentMoves(0, 1, 0.5),
        lambda: RevertingMoves(0, 1, 1),
        lambda: BlockMoves(history, 6),
        lambda: BlockMoves(history, 0),
        lambda: BlockMoves(np.ones(5), 2),
        lambda: SignFlipMoves(block=0),
    ):
        with pytest.raises(ConfigError):
            make()
