"""Attackers by a hidden chain: only the truth goes on from itself, and who knows how it moves smooths it out.

P3 takes a Kalman filter for "sophisticated signal processing"; it has one normal belief about the value and forgets
what the candidates are. A chain over the candidates (`kernels.foil_chains`) is exact where fakes are noise around the
truth: `filter` up to each step, `smoother` with all that came after, `viterbi` the one likeliest path. Where the fakes
are not around the truth, the chain has the moves alone to go by. It does not use the order of the candidates.

`hindsight` is for values that become public after a while. It starts from what was true then, which slots are granted
to show, and follows it to now.
"""

from __future__ import annotations

import numpy as np

from veilcast.lab.attack.foil_model import Candidates, Model, Posterior, known
from veilcast.lab.kernels import foil_chains


def filtered(candidates: Candidates, model: Model) -> Posterior:
    return foil_chains.forward(model.numbers(candidates), *_terms(model))


def smoothed(candidates: Candidates, model: Model) -> Posterior:
    return foil_chains.smoothed(model.numbers(candidates), *_terms(model))


def viterbi(candidates: Candidates, model: Model) -> Posterior:
    path = foil_chains.best_path(model.numbers(candidates), *_terms(model))
    # Candidates of one value are one guess.
    chosen = candidates == np.take_along_axis(candidates, path[:, :, None], axis=2)
    return np.asarray(chosen / chosen.sum(axis=2, keepdims=True), np.float64)


def hindsight(candidates: Candidates, model: Model) -> Posterior:
    values, told = model.numbers(candidates), model.numbers(known(model.told))
    return foil_chains.traced(values, told, model.delay, *_terms(model)[:3], float(model.branching))


def _terms(model: Model) -> tuple[float, float, float, float]:
    """Of the law of moves and the noise, as floats: whole numbers would have kernels of their own compiled."""
    scale, mean, freedom = known(model.truth)
    return float(scale), float(mean), float(freedom), float(model.noise or 0)
