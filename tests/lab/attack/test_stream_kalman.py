"""P3's Kalman attacker: a little above a guess with one fake, below it with more, as published; and why."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.window import WindowFakes
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import MoveLaw, StreamModel
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates

READINGS = ("kalman-nearest", "kalman-bank", "kalman-mean")
MOVE, NOISE, FILTER = 0.21, 0.0164, 0.1034
"""Deviations: of a real minute's move, of Table I's noise at factor 1, and what Eq. 1 says of a minute at 500."""


def reached(name: str, k: int, factor: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    values = 500 + MOVE * np.cumsum(rng.standard_normal((60, 300)), axis=1)
    noise = NOISE * factor**0.5
    candidates, position = foil_series(NoiseFakes(k, noise), values, rng)
    score = score_candidates(name, candidates, StreamModel(truth=MoveLaw(FILTER), noise=noise))
    return float(indistinguishability(likeliest_candidates(score), position)[:, 1:].mean())


@pytest.mark.parametrize("name", READINGS)
def test_with_one_fake_it_is_no_worse_than_a_guess_and_with_more_it_is(name: str) -> None:
    assert 0.49 < reached(name, 1, 1, 1) < 0.53
    for k in (3, 10):
        assert reached(name, k, 1, k) < 1 / (k + 1)


@pytest.mark.parametrize(("k", "published"), [(1, 0.517), (2, 0.270), (3, 0.144), (5, 0.047), (10, 0.010)])
def test_the_third_reading_reaches_what_prototypes_did(k: int, published: float) -> None:
    assert reached("kalman-mean", k, 1, k) == pytest.approx(published, abs=0.02)


def test_more_noise_doubles_what_it_finds() -> None:
    assert reached("kalman-mean", 3, 100, 4) > 1.8 * reached("kalman-mean", 3, 1, 4)


@pytest.mark.parametrize("name", READINGS)
def test_it_finds_the_truth_where_it_must_and_only_guesses_where_nothing_moves_by_its_law(name: str) -> None:
    rng = np.random.default_rng(5)
    values = 500 + np.cumsum(rng.standard_normal((60, 100)), axis=1)
    candidates, position = foil_series(NoiseFakes(3, 30.0), values, rng)
    if name == "kalman-bank":
        # It follows slots, and needs the truth to stay in one.
        rows = np.arange(position.size)
        flat = candidates.reshape(-1, 4)
        flat[rows, position.ravel()], flat[rows, 0] = flat[rows, 0].copy(), values.ravel()
        position = np.zeros_like(position)
    hits = indistinguishability(
        likeliest_candidates(score_candidates(name, candidates, StreamModel(truth=MoveLaw(1.0), noise=30.0))),
        position,
    )
    assert hits[:, 10:].mean() > (0.7 if name != "kalman-mean" else 0.3)
    # Independent values in the place of a walk, and a random centre: nothing goes on from anything.
    values = 500 + 30 * rng.standard_normal((60, 100))
    candidates, position = foil_series(WindowFakes(3, 30.0), values, rng)
    alike = candidates.reshape(-1, 4)[rng.permutation(6000)].reshape(60, 100, 4)
    hits = indistinguishability(
        likeliest_candidates(score_candidates(name, alike, StreamModel(truth=MoveLaw(1.0)))), position
    )
    assert hits.mean() == pytest.approx(0.25, abs=0.02)
