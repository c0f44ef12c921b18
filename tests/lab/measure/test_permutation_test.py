"""The classifier finds a planted signal, and finds nothing where there is nothing but phases that differ."""

from __future__ import annotations

import numpy as np

from veilcast.lab.measure.permutation_test import PhaseSamples, judge_classifier

PHASES, EACH = 80, 24


def samples(shift: float, moods: float, seed: int = 1) -> PhaseSamples:
    """Phases of either kind, each with a mood of its own; those of one kind are shifted."""
    rng = np.random.default_rng(seed)
    labels, phases = np.arange(PHASES) % 2, np.repeat(np.arange(PHASES), EACH)
    mood = rng.normal(size=(PHASES, 1)) * moods
    noise = rng.normal(size=(PHASES * EACH, 6))
    return PhaseSamples(
        noise + np.repeat(mood + labels[:, None] * shift, EACH, axis=0), np.repeat(labels, EACH), phases
    )


def test_nothing_is_told_from_noise() -> None:
    verdict = judge_classifier(samples(0.0, 0.0), seed=2)
    assert verdict.is_silent
    assert verdict.high - verdict.low < 0.1


def test_a_small_planted_shift_is_told() -> None:
    verdict = judge_classifier(samples(0.3, 0.0), seed=1)
    assert verdict.area > 0.6 > verdict.high


def test_phases_that_differ_by_themselves_tell_nothing() -> None:
    verdict = judge_classifier(samples(0.0, 1.0), seed=1)
    assert verdict.is_silent, "a split within phases would have learnt them by heart"
