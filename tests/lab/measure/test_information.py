from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.measure.information import mutual_information


def test_scores_that_are_the_role_hold_all_of_its_entropy() -> None:
    positive = np.arange(1000) < 250
    found = mutual_information(positive.astype(np.float64), positive, 1)
    assert found.bits == pytest.approx(0.811, abs=0.01)
    assert found.surprise < 0.01


def test_a_channel_that_errs_in_a_tenth_of_the_cases_has_its_capacity() -> None:
    rng = np.random.default_rng(1)
    positive = rng.random(20_000) < 0.5
    seen = positive ^ (rng.random(20_000) < 0.1)
    assert mutual_information(seen.astype(np.float64), positive, 1, shuffles=20).bits == pytest.approx(0.531, abs=0.02)


def test_blind_scores_lie_on_the_floor() -> None:
    """The null control."""
    rng = np.random.default_rng(2)
    found = [mutual_information(rng.random(300), rng.random(300) < 0.1, seed, shuffles=50) for seed in range(60)]
    assert np.mean([each.bits for each in found]) == pytest.approx(0, abs=0.003)
    assert np.mean([each.surprise < 0.05 for each in found]) < 0.15
    assert all(abs(each.floor) < 0.02 for each in found)
