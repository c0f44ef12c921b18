"""Following each slot over a whole stream: other laws, turns, restlessness seen elsewhere, and questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.movers import GaussianMoves, Mover, SignFlipMoves, StudentMoves
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.lab.attack.registry import applies, attackers_on, score_candidates
from veilcast.lab.attack.stream.model import KNOWS_NOTHING, MoveLaw, Numbers, SignLaw, StreamModel, StreamObservations
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates

STREAMS, STEPS, K = 800, 60, 3
ERROR = (0.25 * 0.75 / STREAMS) ** 0.5


def reached(name: str, moves: Numbers, mover: Mover[Any], model: StreamModel) -> float:
    values = 500 + np.cumsum(moves, axis=1)
    candidates, position = foil_series(Trajectories(K, mover), values, np.random.default_rng(3))
    return float(indistinguishability(likeliest_candidates(score_candidates(name, candidates, model)), position).mean())


def test_normal_fakes_of_a_truth_with_heavy_tails_are_known_by_their_likelihood() -> None:
    moves = np.random.default_rng(1).standard_t(3, (STREAMS, STEPS))
    model = StreamModel(truth=MoveLaw(1.0, 0.0, 3.0), fakes=MoveLaw(3**0.5))
    assert reached("likelihood-ratio", moves, GaussianMoves(0, 3**0.5), model) > 0.75
    alike = reached("likelihood-ratio", moves, StudentMoves(0, 1, 3), model)
    assert alike == pytest.approx(0.25, abs=3.5 * ERROR), "fakes of the law of the truth are not"


def test_moves_that_turn_back_are_known_among_fair_coins() -> None:
    noise = np.random.default_rng(2).standard_normal((STREAMS, STEPS + 1))
    model = StreamModel(signs=SignLaw(0.0, -0.8))
    assert reached("turns", noise[:, 1:] - 0.5 * noise[:, :-1], SignFlipMoves(), model) > 0.6
    assert reached("turns", noise[:, 1:], SignFlipMoves(), model) == pytest.approx(0.25, abs=3.5 * ERROR)


def test_restlessness_that_is_seen_elsewhere_knows_fakes_of_any_law_and_not_sign_flip() -> None:
    rng = np.random.default_rng(4)
    size = np.exp(rng.standard_normal((STREAMS, STEPS)))
    moves = size * rng.standard_normal((STREAMS, STEPS))
    model = StreamModel(proxy=size * np.exp(0.3 * rng.standard_normal(size.shape)))
    assert reached("restless", moves, StudentMoves(0, 1, 3), model) > 0.9
    assert reached("restless", moves, SignFlipMoves(), model) == pytest.approx(0.25, abs=1e-9)


def test_an_observer_of_questions_knows_the_candidates_asked_about() -> None:
    rng = np.random.default_rng(5)
    candidates = rng.random((20, 50, 4))
    position = rng.integers(4, size=(20, 50))
    asked = position[:, :, None] == np.arange(4)
    asked[:, ::2] = False
    hits = indistinguishability(
        likeliest_candidates(score_candidates("confirmation", candidates, StreamModel(asked=asked))), position
    )
    assert hits[:, 1::2].mean() == 1
    assert hits[:, ::2].mean() == pytest.approx(0.25), "and guesses where nobody asked"
    with pytest.raises(ConfigError, match="same shape"):
        score_candidates("confirmation", candidates, StreamModel(asked=asked[:1]))


def test_logs_are_those_of_the_laws() -> None:
    moves = np.linspace(-4, 4, 9)
    assert MoveLaw(2.0, 0.5).log_density(moves) == pytest.approx(stats.norm.logpdf(moves, 0.5, 2))
    assert MoveLaw(2.0, 0.5, 3).log_density(moves) == pytest.approx(stats.t.logpdf(moves, 3, 0.5, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StreamModel(truth=MoveLaw(0.0)),
        lambda: StreamModel(fakes=MoveLaw(1.0, 0.0, 0.5)),
        lambda: StreamModel(noise=-1.0),
        lambda: StreamModel(branching=2.0),
        lambda: StreamModel(delay=3),
        lambda: StreamModel(told=np.zeros((1, 1))),
        lambda: score_candidates("restless", np.ones((1, 3, 2)), StreamModel(proxy=np.zeros((1, 3)))),
    ],
)
def test_impossible_knowledge_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        wrong()


def test_an_attacker_refuses_a_model_without_its_needs() -> None:
    for attacker in attackers_on(StreamObservations):
        assert applies(attacker, KNOWS_NOTHING) == (not attacker.needs), attacker.name
        if attacker.needs:
            with pytest.raises(ConfigError, match="needs to know"):
                score_candidates(attacker.name, np.zeros((1, 2, 2)), KNOWS_NOTHING)


def test_every_attacker_gives_probabilities() -> None:
    rng = np.random.default_rng(6)
    values = np.cumsum(rng.integers(0, 2, (4, 30)), axis=1).astype(np.float64)
    candidates = values[:, :, None] + rng.integers(0, 9, (4, 30, 5))
    model = StreamModel(
        truth=MoveLaw(1.0),
        fakes=MoveLaw(2.0),
        noise=1.0,
        signs=SignLaw(0.1, 0.1),
        pmf=np.full(64, 1 / 64),
        fake_pmf=np.full(64, 1 / 64),
        delay=3,
        told=values,
        branching=0.1,
        proxy=np.ones((4, 30)),
        asked=rng.random(candidates.shape) < 0.2,
    )
    for attacker in attackers_on(StreamObservations):
        if applies(attacker, model):
            score = score_candidates(attacker.name, candidates, model)
            assert score.shape == candidates.shape, attacker.name
            assert (score >= 0).all(), attacker.name
            assert score.sum(axis=2) == pytest.approx(1), attacker.name
