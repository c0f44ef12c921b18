"""The model of cell times is that of links: the same law of gaps, of the walk and of the periods of links."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from veilcast.crypto.secret import Secret
from veilcast.lab.models import cell_times as model
from veilcast.lab.models.cell_times import cell_times
from veilcast.link.pacing import SECOND_US, CellSlots, SendJitter

SECONDS, LINKS = 50, 60


def of_links(seed: int) -> NDArray[np.float64]:
    """Links x cells: the times of the real slots."""
    jitter, rng = SendJitter(Secret(Random(seed).randbytes(32))), Random(seed)
    rows = []
    for _ in range(LINKS):
        slots, times = CellSlots(4, phase_us=rng.randrange(SECOND_US), now=0, jitter=jitter), []
        for _ in range(4 * SECONDS):
            times.append(slots.next_us)
            slots.take_due_slot(slots.next_us)
        rows.append(times)
    return np.array(rows, np.float64)


def of_model(seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    rows = [cell_times(rng, rate=4, seconds=SECONDS, skew_ppm=0, walks=True, stretches=True) for _ in range(LINKS)]
    return np.array(rows, np.float64)


def test_gaps_spans_and_spreads_follow_one_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LATE_US", 0.0)
    real, made = of_links(1), of_model(2)
    assert_one_law(np.diff(real, axis=1)[:, ::2], np.diff(made, axis=1)[:, ::2])
    assert_one_law(real[:, -1] - real[:, 0], made[:, -1] - made[:, 0])
    assert_one_law(*(np.diff(times[:, ::20], n=2, axis=1)[:, ::3] for times in (real, made)))


def assert_one_law(some: NDArray[np.float64], others: NDArray[np.float64]) -> None:
    assert stats.ks_2samp(some.ravel(), others.ravel()).pvalue > 0.001


def test_a_day_that_is_thinned_walks_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    spans = []
    for most in (1 << 20, 100):
        monkeypatch.setattr(model, "CELLS_MAX", most)
        walks = [cell_times(rng, rate=4, seconds=600, skew_ppm=0, walks=True, stretches=False) for _ in range(200)]
        spans.append(
            np.array([times[-1] - times[0] - (len(times) - 1) * 250_000 * (2400 // len(times)) for times in walks])
        )
    assert stats.ks_2samp(*spans).pvalue > 0.001


def test_a_fast_clock_sends_sooner() -> None:
    rng = np.random.default_rng(1)
    times = cell_times(rng, rate=4, seconds=3600, skew_ppm=100, walks=False, stretches=False)
    assert len(times) == 14_400
    assert abs((times[-1] - times[0]) / (14_399 * 250_000) - 1 + 100e-6) < 20e-6
