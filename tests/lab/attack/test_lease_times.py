"""Pairs of leases by time: each attacker finds members that show what it looks for, and nothing where nobody does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.server.lease_times import (
    LeaseTimes,
    score_receipts,
    score_returns,
    score_rhythm,
    score_silences,
)
from veilcast.lab.measure.ranking import auc

MEMBERS, EACH, HOURS = 12, 3, 6
LEASES = MEMBERS * EACH
OWNER = np.repeat(np.arange(MEMBERS), EACH)
FIRST, SECOND = np.triu_indices(LEASES, 1)
SAME = OWNER[FIRST] == OWNER[SECOND]
RNG = np.random.default_rng
Times = list[NDArray[np.float64]]


def observe(times: Times, delays_us: NDArray[np.int64] | None = None) -> LeaseTimes:
    """A log with these times of requests, in seconds, for each lease; and ten receipts of each."""
    lease = np.repeat(np.arange(LEASES), [len(each) for each in times])
    t_us = (np.concatenate(times) * 1e6).astype(np.int64)
    order = np.argsort(t_us, kind="stable")
    delays = np.full(LEASES, 300_000) if delays_us is None else delays_us
    receipts = np.repeat(np.arange(LEASES), 10)
    noise = RNG(3).integers(0, 20_000, receipts.size)
    return LeaseTimes(
        LEASES,
        lease[order],
        t_us[order],
        receipts,
        np.tile(np.arange(10) * 60_000_000, LEASES),
        delays[receipts] + noise,
    )


def drawn(seed: int = 1) -> Times:
    """Requests at random times, a minute apart on average."""
    rng = RNG(seed)
    return [np.cumsum(rng.exponential(60, HOURS * 60)) for _ in range(LEASES)]


def after_answers() -> Times:
    """Requests a minute after the last answer, which takes as long as its member is away."""
    rng = RNG(2)
    trip = rng.uniform(0.02, 0.2, MEMBERS)
    return [np.cumsum(60 + trip[owner] + rng.uniform(0, 0.02, HOURS * 60)) + rng.uniform(0, 60) for owner in OWNER]


def with_absences(times: Times) -> Times:
    """Each member is away for twenty minutes, and asks under all its leases when it comes back."""
    away = RNG(4).uniform(3_600, 12_000, MEMBERS)
    shown = []
    for owner, each in zip(OWNER, times, strict=True):
        back = away[owner] + 1_200 + RNG(int(1e3 * each[0])).uniform(0, 1)
        shown.append(np.sort(np.append(each[(each < away[owner]) | (each > back)], back)))
    return shown


def found(score: Callable[[LeaseTimes], NDArray[np.float64]], seen: LeaseTimes) -> float:
    return auc(score(seen)[FIRST, SECOND], SAME)


def test_intervals_show_the_round_trip() -> None:
    assert found(score_rhythm, observe(after_answers())) > 0.9


def test_delays_of_receipts_show_the_round_trip() -> None:
    trips = RNG(5).integers(20_000, 500_000, MEMBERS)[OWNER]
    assert found(score_receipts, observe(drawn(), trips)) > 0.9


def test_silences_and_returns_show_who_was_away() -> None:
    seen = observe(with_absences(after_answers()))
    assert found(score_silences, seen) > 0.9
    assert found(score_returns, seen) > 0.9


@pytest.mark.parametrize("score", [score_rhythm, score_receipts, score_silences, score_returns])
def test_random_times_of_their_own_show_nothing(score: Callable[[LeaseTimes], NDArray[np.float64]]) -> None:
    """The null control: its mean over logs."""
    assert np.mean([found(score, observe(drawn(seed))) for seed in range(20)]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("score", [score_rhythm, score_receipts, score_silences, score_returns])
def test_a_log_without_requests_has_no_better_pairs(score: Callable[[LeaseTimes], NDArray[np.float64]]) -> None:
    none = np.zeros(0, np.int64)
    scores = score(LeaseTimes(3, none, none, none, none, none))
    assert scores.shape == (3, 3)
    assert np.isfinite(scores).all()
