"""Attackers on the candidates of one step: a guess, the middle, the most common value, the better odds."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.categories import EntropyFakes, Pmf
from veilcast.foil.generators.movers import SignFlipMoves
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import KNOWS_NOTHING, StreamModel
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates, value_known

STREAMS, STEPS = 400, 50
MEDOID = {1: 0.50, 2: 0.50, 3: 0.43, 5: 0.36, 10: 0.28}
"""The results of the prototypes, whatever the noise."""


def walk(seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return 500 + np.cumsum(np.random.default_rng(seed).standard_normal((STREAMS, STEPS)), axis=1)


@pytest.mark.parametrize("k", MEDOID)
def test_the_middle_of_noise_is_true_too_often_and_ever_more_fakes_hardly_help(k: int) -> None:
    candidates, position = foil_series(NoiseFakes(k, 0.1), walk(k), np.random.default_rng(k))
    found = indistinguishability(
        likeliest_candidates(score_candidates("medoid", candidates, KNOWS_NOTHING)), position
    ).mean()
    assert found == pytest.approx(MEDOID[k], abs=0.012)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_middle_of_a_random_window_is_a_guess_like_any_other(k: int) -> None:
    candidates, position = foil_series(WindowFakes(k, 1.0), walk(k), np.random.default_rng(k))
    for name in ("uniform", "medoid", "most"):
        found = indistinguishability(
            likeliest_candidates(score_candidates(name, candidates, KNOWS_NOTHING)), position
        ).mean()
        assert found == pytest.approx(1 / (k + 1), abs=0.012), name


def test_the_value_of_most_is_known_though_the_message_is_not() -> None:
    rng = np.random.default_rng(1)
    candidates = np.repeat(walk(1)[:, :, None], 5, axis=2)
    candidates[:, :, 4] += 1
    position = rng.integers(5, size=(STREAMS, STEPS))
    chosen = likeliest_candidates(score_candidates("most", candidates, KNOWS_NOTHING))
    assert indistinguishability(chosen, position).mean() == pytest.approx(0.2, abs=0.01)
    assert value_known(chosen, candidates, position).mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("zipf", "k", "published"), [(1, 3, 0.75), (1, 7, 0.62), (2, 7, 0.94)])
def test_knowledge_of_both_laws_breaks_levelling(zipf: int, k: int, published: float) -> None:
    pmf = Pmf(1 / np.arange(1.0, 65.0) ** zipf)
    generator, rng = EntropyFakes(k, pmf), np.random.default_rng(2)
    codes, position = foil_series(generator, pmf.codes_at(rng.random((STREAMS, STEPS))), rng)
    candidates = codes.astype(np.float64)
    model = StreamModel(pmf=pmf.p, fake_pmf=generator.fakes.p)
    found = value_known(likeliest_candidates(score_candidates("odds", candidates, model)), candidates, position).mean()
    assert found == pytest.approx(published, abs=0.015)
    # The null: fakes by the law of the truth.
    alike = pmf.codes_at(rng.random((STREAMS, STEPS, k + 1))).astype(np.float64)
    found = indistinguishability(
        likeliest_candidates(score_candidates("odds", alike, StreamModel(pmf=pmf.p, fake_pmf=pmf.p))), position
    )
    assert found.mean() == pytest.approx(1 / (k + 1), abs=0.01)


def test_malformed_candidates_and_missing_knowledge_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs to know pmf and fake_pmf"):
        score_candidates("odds", np.zeros((1, 1, 2)), KNOWS_NOTHING)
    with pytest.raises(ConfigError, match="codes from 0 to 1"):
        score_candidates("odds", np.full((1, 1, 2), 7.0), StreamModel(pmf=np.ones(2) / 2, fake_pmf=np.ones(2) / 2))
    for wrong in (np.zeros((2, 2)), np.full((1, 1, 2), np.nan), np.zeros((0, 1, 2))):
        with pytest.raises(ConfigError, match="candidates are finite numbers"):
            score_candidates("uniform", wrong, KNOWS_NOTHING)


def test_at_the_beginning_the_most_common_value_is_right_less_often_where_blocks_grow() -> None:
    found = []
    for growing in (False, True):
        lineages = Trajectories(9, SignFlipMoves(block=20, growing=growing))
        candidates, position = foil_series(lineages, walk(8), np.random.default_rng(8))
        cells = np.floor(4 * candidates)  # A step is four cells wide, about.
        chosen = likeliest_candidates(score_candidates("most", cells, KNOWS_NOTHING))
        found.append(value_known(chosen, cells, position)[:, 1:20].mean())
    assert found[0] > 0.58
    assert found[1] < 0.36
