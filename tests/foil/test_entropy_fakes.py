"""Entropy fakes: enough of them make all values equally frequent, fewer as equal as possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.categories import EntropyFakes, Pmf, fakes_for_uniform, water_level

PLACES = np.arange(64)
ZIPF_1, ZIPF_2 = Pmf(1 / (PLACES + 1)), Pmf(1 / (PLACES + 1) ** 2)
BELL = Pmf(np.exp(-(((PLACES - 31.5) / 6) ** 2) / 2))

laws = st.lists(st.floats(0.01, 1), min_size=2, max_size=12).map(Pmf)


def entropy(p: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize(("law", "k"), [(ZIPF_1, 13), (ZIPF_2, 39), (BELL, 4)])
def test_fakes_for_uniform_is_the_smallest_sufficient_number(law: Pmf, k: int) -> None:
    assert fakes_for_uniform(law) == k
    assert np.allclose(EntropyFakes(k, law).composite, 1 / 64, rtol=0, atol=1e-12)
    assert not np.allclose(EntropyFakes(k - 1, law).composite, 1 / 64, rtol=0, atol=1e-6)


@given(laws, st.integers(1, 6), st.integers(0, 2**32))
@settings(max_examples=60)
def test_no_other_distribution_of_fakes_has_more_entropy(law: Pmf, k: int, seed: int) -> None:
    best = entropy(EntropyFakes(k, law).composite)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(law)), 50)
    assert all(entropy((law.p + k * q) / (k + 1)) <= best + 1e-9 for q in others)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 50))
@settings(max_examples=60)
def test_the_water_level_conserves_the_amount(floor: list[float], amount: float) -> None:
    p = np.array(floor)
    assert np.maximum(0, water_level(p, amount) - p).sum() == pytest.approx(amount)


@pytest.mark.parametrize(
    ("law", "k", "right"), [(ZIPF_1, 3, 0.75), (ZIPF_1, 7, 0.62), (ZIPF_2, 7, 0.94), (BELL, 3, 0.91)]
)
def test_an_adversary_that_knows_the_law_finds_the_truth(law: Pmf, k: int, right: float) -> None:
    """By the ratio of p and q: this is why the scheme is a baseline and not a defence."""
    rng = np.random.default_rng(k)
    levelling = EntropyFakes(k, law)
    candidates, position = foil_series(levelling, law.codes_at(rng.random((8000, 1))), rng)
    with np.errstate(divide="ignore"):
        ratio = (law.p / levelling.fakes.p)[candidates[:, 0]]
    # Of candidates with one value any may be picked: it counts if the value is right.
    picked = candidates[np.arange(8000), 0, ratio.argmax(axis=1)]
    truth = candidates[np.arange(8000), 0, position[:, 0]]
    assert np.mean(picked == truth) == pytest.approx(right, abs=0.03)


def test_messages_hold_values_with_the_composite_frequency() -> None:
    rng = np.random.default_rng(1)
    levelling = EntropyFakes(3, ZIPF_1)
    candidates, _ = foil_series(levelling, ZIPF_1.codes_at(rng.random((20_000, 1))), rng)
    shares = np.bincount(candidates.ravel(), minlength=64) / candidates.size
    assert np.abs(shares - levelling.composite).max() < 0.003


def test_invalid_probabilities_are_refused() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0, 1.0], [1.0, np.nan], [[0.5, 0.5]], []):
        with pytest.raises(ConfigError):
            Pmf(weights)
