"""Trajectories and sign-flip: candidates that are exchangeable as whole paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.foil_generators import rank_of_truth, unevenness
from veilcast.errors import LocalError
from veilcast.foil.generators.base import Generator, foil_series, swap_candidates
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.generators.movers import GaussianMoves, Mover, SignFlipMoves, StudentMoves
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.trajectory import Trajectories

STREAMS, STEPS, K = 4000, 30, 3
Measures = dict[str, npt.NDArray[np.float64]]


def walk(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return 500 + np.cumsum(rng.standard_normal((STREAMS, STEPS)), axis=1)


def ranks_uneven(generator: Generator[Any, np.float64], seed: int) -> dict[str, float]:
    """How unevenly the truth ranks among its fakes, by statistics of the whole path."""
    rng = np.random.default_rng(seed)
    candidates, position = foil_series(generator, walk(rng), rng)
    # Where there are no lineages, the truth at least is granted to be followed.
    last = np.repeat(position[:, -1:], STEPS, axis=1)
    candidates = swap_candidates(candidates.reshape(-1, K + 1), position.ravel(), last.ravel()).reshape(
        candidates.shape
    )
    moves = np.diff(candidates, axis=1)
    measures: Measures = {
        "end": candidates[:, -1],
        "restlessness": (moves**2).sum(axis=1),
        "largest move": np.abs(moves).max(axis=1),
        "momentum": (moves[:, 1:] * moves[:, :-1]).sum(axis=1),
        "distance to all": np.abs(candidates - candidates.mean(axis=2, keepdims=True)).sum(axis=1),
    }
    return {name: unevenness(rank_of_truth(each, position[:, -1], rng), K + 1) for name, each in measures.items()}


@pytest.mark.parametrize(
    "mover", [GaussianMoves(0, 1), SignFlipMoves(), SignFlipMoves(block=5)], ids=["law", "sign-flip", "blocks"]
)
def test_no_path_statistic_reveals_the_truth_under_the_right_law(mover: Mover[Any]) -> None:
    assert max(ranks_uneven(Trajectories(K, mover), 1).values()) < 4.5


def test_path_statistics_reveal_the_truth_under_a_wrong_law() -> None:
    noise = ranks_uneven(NoiseFakes(K, 1), 2)
    assert min(noise["restlessness"], noise["momentum"], noise["distance to all"]) > 15
    wrong = ranks_uneven(Trajectories(K, StudentMoves(0, 1, 3)), 3)
    assert min(wrong["restlessness"], wrong["largest move"]) > 15
    assert ranks_uneven(Trajectories(K, GaussianMoves(0.3, 1)), 4)["end"] > 15, "a drift that the truth has not"


def test_fakes_continue_their_own_paths_from_the_first_value() -> None:
    rng = np.random.default_rng(5)
    values = walk(rng)
    candidates, position = foil_series(Trajectories(K, GaussianMoves(0, 1e-3)), values, rng)
    assert (candidates[:, 0] == values[:, :1]).all()
    fakes = np.arange(K + 1) != position[:, -1:]
    assert np.abs(np.diff(candidates, axis=1)).max(axis=1)[fakes].max() < 0.01
    assert (position == position[:, :1]).all(), "and the truth stays in its slot"


def test_sign_flip_moves_every_candidate_as_far_as_the_truth() -> None:
    rng = np.random.default_rng(6)
    values = np.round(walk(rng), 2)
    candidates, _ = foil_series(Trajectories(K, SignFlipMoves(), NumericDomain(decimals=2)), values, rng)
    assert np.allclose(np.abs(np.diff(candidates, axis=1)), np.abs(np.diff(values, axis=1))[:, :, None])
    prices = np.exp(walk(rng) / 100)
    candidates, _ = foil_series(Trajectories(K, SignFlipMoves(relative=True)), prices, rng)
    sizes = np.abs(np.diff(np.log(candidates), axis=1))
    assert np.allclose(sizes, np.abs(np.diff(np.log(prices), axis=1))[:, :, None])


def test_one_sign_serves_for_a_block_of_steps() -> None:
    rng = np.random.default_rng(7)
    values = walk(rng)
    candidates, _ = foil_series(Trajectories(K, SignFlipMoves(block=5)), values, rng)
    signs = np.sign(np.diff(candidates, axis=1) / np.diff(values, axis=1)[:, :, None])[:, :25]
    blocks = signs.reshape(STREAMS, 5, 5, K + 1)
    assert (blocks == blocks[:, :, :1]).all()
    assert abs(np.mean(blocks[:, 1, 0] * blocks[:, 0, 0]) - 1 / (K + 1)) < 0.05, "and the next has one of its own"


def test_sign_flip_starts_with_few_different_values() -> None:
    """The limit stated in the module's docstring: two values after one step, four after two."""
    rng = np.random.default_rng(8)
    candidates, _ = foil_series(Trajectories(9, SignFlipMoves()), np.round(walk(rng), 3), rng)
    different = [len(np.unique(np.round(candidates[0, step], 6))) for step in (0, 1, 2, 29)]
    assert different[0] == 1
    assert different[1] <= 2
    assert different[2] <= 4
    assert different[3] >= 9


def test_growing_blocks_end_together_and_soon_reach_their_length() -> None:
    rng = np.random.default_rng(12)
    values = walk(rng)
    candidates, _ = foil_series(Trajectories(K, SignFlipMoves(block=5, growing=True)), values, rng)
    signs = np.sign(np.diff(candidates, axis=1) / np.diff(values, axis=1)[:, :, None])
    turns = np.flatnonzero((np.diff(signs, axis=1) != 0).any(axis=(0, 2))) + 1
    assert turns.tolist() == [1, 3, 7, 12, 17, 22, 27], "after blocks of 1, 2, 4, and then of 5"


def test_a_resting_truth_lets_all_candidates_rest() -> None:
    rng = np.random.default_rng(9)
    candidates, _ = foil_series(Trajectories(K, SignFlipMoves()), np.full((3, 10), 7.0), rng)
    assert (candidates == 7).all()


def test_relative_moves_refuse_values_that_are_not_positive() -> None:
    rng = np.random.default_rng(10)
    with pytest.raises(LocalError):
        foil_series(Trajectories(K, SignFlipMoves(relative=True)), np.array([[1.0, -1.0]]), rng)


@pytest.mark.parametrize("rate", [0.0, 3.0])
def test_fakes_stay_in_the_declared_domain_with_the_declared_decimals(rate: float) -> None:
    rng = np.random.default_rng(11)
    period = NumericDomain(490, 510, decimals=2)
    values = period.fit(walk(rng))
    candidates, _ = foil_series(MoranTrajectories(Trajectories(K, GaussianMoves(0, 5), period), rate), values, rng)
    assert np.array_equal(period.check(candidates), candidates)
