"""Hidden chains: exact by enumeration; as good as prototypes were on noise; no better than a guess on trajectories."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.generators.movers import GaussianMoves
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import Candidates, MoveLaw, Numbers, StreamModel
from veilcast.lab.measure.foil_privacy import Places, indistinguishability, likeliest_candidates
from veilcast.lab.models import hidden_chain

CHAINS = ("filter", "smoother", "viterbi")
PUBLISHED = {
    (1, 1): (0.64, 0.68),
    (1, 3): (0.46, 0.48),
    (1, 10): (0.29, 0.30),
    (10, 1): (0.93, 0.95),
    (10, 3): (0.82, 0.87),
    (10, 10): (0.53, 0.62),
}
"""By (noise in deviations of a move, fakes): what filter and smoother of prototypes reached."""


def walk(streams: int, steps: int, seed: int) -> Numbers:
    return 500 + np.cumsum(np.random.default_rng(seed).standard_normal((streams, steps)), axis=1)


def found(name: str, candidates: Candidates, position: Places, model: StreamModel) -> float:
    return float(indistinguishability(likeliest_candidates(score_candidates(name, candidates, model)), position).mean())


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    noise=st.sampled_from([0.0, 0.3, 1e-3]),
    freedom=st.sampled_from([math.inf, 3.0]),
    far=st.sampled_from([1.0, 40.0, 4000.0]),
)
def test_shares_and_paths_are_those_of_enumerating_all_paths(
    seed: int, noise: float, freedom: float, far: float
) -> None:
    """Also where candidates are so far apart that no exponential holds it."""
    steps, n, law = 4, 3, MoveLaw(0.7, 0.1, freedom)
    values = far * np.random.default_rng(seed).standard_normal((steps, n))
    paths = np.array(list(product(range(n), repeat=steps)))
    emission = -((values[:, :, None] - values[:, None, :]) ** 2).sum(axis=2) / (2 * noise**2) if noise else 0 * values

    def logs(upto: int) -> Numbers:
        along = values[np.arange(upto), paths[:, :upto]]
        moves = law.log_density(np.diff(along, axis=1)).sum(axis=1)
        return np.asarray(moves + emission[np.arange(upto), paths[:, :upto]].sum(axis=1))

    def shares(step: int, upto: int) -> Numbers:
        weight = np.exp(logs(upto) - logs(upto).max())
        return np.asarray(np.bincount(paths[:, step], weight, n) / weight.sum())

    terms = (*law, noise)
    forward = hidden_chain.filter_forward(values[None], *terms)[0]
    smoothed = hidden_chain.smooth(values[None], *terms)[0]
    for step in range(steps):
        assert forward[step] == pytest.approx(shares(step, step + 1), abs=1e-9)
        assert smoothed[step] == pytest.approx(shares(step, steps), abs=1e-9)
    best = hidden_chain.best_path(values[None], *terms)[0]
    chosen = int((paths == best).all(axis=1).argmax())
    assert logs(steps)[chosen] == pytest.approx(logs(steps).max(), rel=1e-12)


@pytest.mark.parametrize(("noise", "k"), PUBLISHED)
def test_smoothing_finds_the_truth_in_noise_as_prototypes_did(noise: int, k: int) -> None:
    candidates, position = foil_series(NoiseFakes(k, noise), walk(30, 300, k), np.random.default_rng(k))
    model = StreamModel(truth=MoveLaw(1.0), noise=noise)
    for name, published in zip(("filter", "smoother"), PUBLISHED[noise, k], strict=True):
        assert found(name, candidates, position, model) == pytest.approx(published, abs=0.025), name


@pytest.mark.parametrize(("spread", "published"), [(1, 0.48), (10, 0.90)])
def test_a_random_common_centre_does_not_hide_how_the_truth_moves(spread: float, published: float) -> None:
    candidates, position = foil_series(WindowFakes(3, spread), walk(40, 300, 5), np.random.default_rng(5))
    assert found("smoother", candidates, position, StreamModel(truth=MoveLaw(1.0))) == pytest.approx(
        published, abs=0.02
    )


@pytest.mark.parametrize("k", [1, 3, 10])
def test_whole_trajectories_of_the_same_law_leave_no_more_than_a_guess(k: int) -> None:
    candidates, position = foil_series(
        Trajectories(k, GaussianMoves(0, 1)), walk(1500, 30, k), np.random.default_rng(k)
    )
    for name in CHAINS:
        # Steps of one stream stand and fall together: the error is that of 1,500 guesses.
        share = 1 / (k + 1)
        error = math.sqrt(share * (1 - share) / 1500)
        assert found(name, candidates, position, StreamModel(truth=MoveLaw(1.0))) == pytest.approx(
            share, abs=3.5 * error
        ), name


def test_relative_laws_see_logarithms() -> None:
    candidates, _ = foil_series(NoiseFakes(3, 0.5), walk(5, 60, 6), np.random.default_rng(6))
    model, logs = StreamModel(truth=MoveLaw(0.1), noise=0.1, relative=True), np.log(candidates)
    plain = score_candidates("smoother", logs, StreamModel(truth=MoveLaw(0.1), noise=0.1))
    assert score_candidates("smoother", candidates, model) == pytest.approx(plain)
    with pytest.raises(ConfigError, match="above 0"):
        score_candidates("smoother", -candidates, model)


@pytest.mark.parametrize(("rate", "published"), [(0.0, 1.0), (0.4, 0.44), (1.6, 0.26)])
def test_the_past_truth_shows_the_present_one_unless_lineages_branch(rate: float, published: float) -> None:
    """Four candidates, and the truth is public after 15 steps; the more branchings in a step, the less it tells."""
    values, n, delay = walk(600, 60, 7), 4, 15
    candidates, position = foil_series(
        MoranTrajectories(Trajectories(n - 1, GaussianMoves(0, 1)), rate), values, np.random.default_rng(7)
    )
    model = StreamModel(truth=MoveLaw(1.0), told=values, delay=delay, branching=min(rate / n, 1))
    score = score_candidates("hindsight", candidates, model)
    hits = indistinguishability(likeliest_candidates(score), position)
    assert hits[:, delay + 1 :].mean() == pytest.approx(published, abs=0.06)
    assert score[:, :delay] == pytest.approx(1 / n), "before anything is public it guesses"


def test_hindsight_does_not_look_at_what_is_not_public_yet() -> None:
    values = walk(3, 40, 8)
    candidates, _ = foil_series(Trajectories(3, GaussianMoves(0, 1)), values, np.random.default_rng(8))
    later = values.copy()
    later[:, 21:] = 0
    scores = [
        score_candidates("hindsight", candidates, StreamModel(truth=MoveLaw(1.0), told=told, delay=10))
        for told in (values, later)
    ]
    assert np.array_equal(scores[0][:, :31], scores[1][:, :31])
