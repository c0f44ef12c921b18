"""Moran branching, with the genealogy open to the adversary: the worst case."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from support.foil_generators import rank_of_truth, unevenness
from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.moran import RATE_MAX, MoranTrajectories, branching_rate, draw_branching, draw_poisson
from veilcast.foil.generators.movers import GaussianMoves, SignFlipMoves, SignPersistence
from veilcast.foil.generators.trajectory import Trajectories


def posterior(n: int, weight: int) -> set[Fraction]:
    """Posterior of the label after one event on uniform slots: for the parent, its child, and the bystanders."""
    shares = dict.fromkeys(range(n), Fraction(0))
    parent, victim = next(permutations(range(n), 2))
    for label in range(n):
        if label == parent:
            event = Fraction(weight, n) * Fraction(1, n - 1)
            shares[parent] += event / 2
            shares[victim] += event / 2
        elif label != victim:
            shares[label] += (1 - Fraction(weight, n)) * Fraction(1, n - 1) * Fraction(1, n - 2)
    return {share / sum(shares.values()) for share in shares.values()}


def test_a_branching_reveals_nothing_only_for_a_weight_of_two() -> None:
    for n in range(3, 12):
        assert posterior(n, 2) == {Fraction(1, n)}
        assert len(posterior(n, 1)) == 2
        assert len(posterior(n, 3)) == 2


@pytest.mark.parametrize("n", [2, 3, 5])
def test_branchings_are_drawn_with_the_stated_probabilities(n: int) -> None:
    rng = np.random.default_rng(n)
    streams = 60_000
    truth = rng.integers(0, n, streams)
    parent, victim, after = draw_branching(truth, n, rng)
    assert ((parent >= 0) & (parent < n) & (victim >= 0) & (victim < n)).all()
    assert (victim != parent).all()
    assert (victim != truth).all()
    by_truth = parent == truth
    assert np.mean(by_truth) == pytest.approx(2 / n, abs=0.01)
    assert np.mean(after[by_truth] == victim[by_truth]) == pytest.approx(0.5, abs=0.015)
    assert (after[~by_truth] == truth[~by_truth]).all()
    if n > 2:
        assert unevenness((victim - truth)[by_truth] % n - 1, n - 1) < 4.5
        assert unevenness((parent - truth)[~by_truth] % n - 1, n - 1) < 4.5
        ways = ((parent - truth) % n * n + (victim - truth) % n)[~by_truth]
        assert np.bincount(ways)[np.bincount(ways) > 0].size == (n - 1) * (n - 2)


def fewest_branchings(n: int, *, naive: bool) -> float:
    """How often the lineage with the fewest branchings as a parent is true."""
    rng = np.random.default_rng(1)
    rows = np.arange(3000)
    truth = rng.integers(0, n, len(rows))
    branched = np.zeros((len(rows), n))
    for _ in range(60):
        parent, victim, truth = draw_branching(truth, n, rng, naive=naive)
        branched[rows, parent] += 1
        branched[rows, victim] = branched[rows, parent]
    return float(np.mean(rank_of_truth(branched, truth, rng) == 0))


def test_counting_the_branchings_of_each_lineage_reveals_nothing() -> None:
    assert fewest_branchings(4, naive=False) == pytest.approx(0.25, abs=0.032)


def test_with_a_uniform_parent_the_count_reveals_the_truth() -> None:
    assert fewest_branchings(4, naive=True) == pytest.approx(0.69, abs=0.04)


@pytest.mark.parametrize(("rate", "right"), [(0, 1.0), (0.4, 0.44), (0.8, 0.30), (1.6, 0.26), (3.2, 0.25)])
def test_the_truth_of_a_delay_ago_says_little_about_today(rate: float, right: float) -> None:
    """n = 4, public after 15 steps, by the best guess from every event since: Bayes' rule, event by event."""
    n, delay, rng = 4, 15, np.random.default_rng(2)
    streams = 6000
    truth = np.zeros(streams, dtype=np.int64)
    belief = np.tile(np.eye(n)[0], (streams, 1))
    events = draw_poisson(rate * delay, (streams,), rng)
    for event in range(events.max()):
        rows = np.flatnonzero(events > event)
        parent, victim, truth[rows] = draw_branching(truth[rows], n, rng)
        belief[rows, victim] = belief[rows, parent]
        belief[rows] /= belief[rows].sum(axis=1, keepdims=True)
    assert np.mean(rank_of_truth(-belief, truth, rng) == 0) == pytest.approx(right, abs=0.03)
    assert branching_rate(4, 15) == pytest.approx(1.6)


def test_candidates_branch_and_the_truth_keeps_an_unbroken_path() -> None:
    """With moves far smaller than distances, copies are visible: a slot jumps to the value of another."""
    rng = np.random.default_rng(3)
    values = np.cumsum(rng.standard_normal((2000, 40)), axis=1)
    candidates, position = foil_series(MoranTrajectories(Trajectories(3, GaussianMoves(0, 1)), rate=2.0), values, rng)
    rows = np.arange(2000)
    assert np.array_equal(candidates[rows[:, None], np.arange(40), position], values)
    assert unevenness(position[:, -1], 4) < 4.5
    assert np.mean(position[:, 1:] != position[:, :-1]) > 0.2, "the truth changes its slot"
    assert np.diff(np.sort(candidates[:, 1:], axis=2), axis=2).min() > 0, "and nothing is seen twice in one step"


def test_the_rank_of_a_value_does_not_reveal_the_truth() -> None:
    rng = np.random.default_rng(4)
    values = np.cumsum(rng.standard_normal((6000, 30)), axis=1)
    candidates, position = foil_series(MoranTrajectories(Trajectories(3, GaussianMoves(0, 1)), rate=2.0), values, rng)
    centre = np.abs(candidates[:, -1] - candidates[:, -1].mean(axis=1, keepdims=True))
    assert unevenness(rank_of_truth(candidates[:, -1], position[:, -1], rng), 4) < 4.5
    assert unevenness(rank_of_truth(centre, position[:, -1], rng), 4) < 4.5


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 60.0])
def test_counts_are_poisson(rate: float) -> None:
    counts = draw_poisson(rate, (40_000,), np.random.default_rng(5))
    assert counts.mean() == pytest.approx(rate, rel=0.02)
    assert counts.var() == pytest.approx(rate, rel=0.05)
    assert np.mean(counts == 0) == pytest.approx(np.exp(-rate), abs=0.01)


def test_invalid_rates_and_delays_are_refused() -> None:
    lineages = Trajectories(3, GaussianMoves(0, 1))
    for rate in (-1.0, RATE_MAX + 1, float("nan")):
        with pytest.raises(ConfigError):
            MoranTrajectories(lineages, rate)
    with pytest.raises(ConfigError):
        branching_rate(4, 0)
    with pytest.raises(ConfigError):
        MoranTrajectories(Trajectories(1, GaussianMoves(0, 1)), 1.0, naive=True)


def test_a_child_reverses_its_parents_last_move() -> None:
    """With signs that always reverse, no lineage continues twice: neither the former truth nor a copy."""
    rng = np.random.default_rng(12)
    moves = np.where(np.arange(40) % 2, 1.0, -1.0) * rng.integers(1, 1000, (50, 40))
    generator = MoranTrajectories(Trajectories(3, SignFlipMoves(persistence=SignPersistence(-30.0))), rate=1.0)
    values = (1e6 + np.cumsum(moves, axis=1)).astype(np.float64)
    state, before, _ = generator.next(generator.begin(50, rng), values[:, 0], rng)
    last = np.zeros((50, 4))
    copied = 0
    for step in range(1, 40):
        state, now, _ = generator.next(state, values[:, step], rng)
        assert state.origin is not None
        went = now - np.take_along_axis(before, state.origin, axis=1)
        assert np.allclose(np.abs(went), np.abs(moves[:, step, None]))
        assert (went * np.take_along_axis(last, state.origin, axis=1) <= 0).all()
        copied += int(np.count_nonzero(state.origin != np.arange(4)))
        before, last = now, went
    assert copied > 500
