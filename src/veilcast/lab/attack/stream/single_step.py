"""Attackers that look at the candidates of one step, and at nothing else.

- `score_uniform` guesses.
- `score_medoid` takes the candidate nearest to the mean of all. Fakes made of the truth plus noise have the truth at
  their centre, so this is right with about 1 / sqrt(n), whatever the noise, and without any model.
- `score_most_common` takes the value that most candidates share. Where fakes are copies of the truth, or so coarse that
  some coincide, the value is known even if the message is not.
- `score_odds`, for categories, takes the candidate with the largest ratio p / q of being true to being a fake. This
  breaks fakes drawn by another law than the truth's (P3's Scenario II) as soon as both laws are known.
- `score_counts` (P3, Scenario II) knows no law but all of the traffic. Too few fakes leave the most frequent values
  standing out. A value that is in the traffic more often than others is often true: of each set it takes the most
  frequent.
- `score_confirmation` sees the questions of P3's step 4. A subscriber asks the publisher whether a notification is
  authentic, and asks only about those that match its authentic subscription. So an observer of the question knows which
  subscription is authentic, and that the event is one of those asked about at that step. Fakes in the same range are
  asked about too, and are all that is left to hide among. Positions from a shared key need no question.
- `score_residual` and `score_density` are for events of two numbers, a primary and a dependent attribute, both standard
  normal with correlation rho. `score_residual` takes the event farthest from the line of regression: fakes on the line
  leave the truth beside it. `score_density` knows how dependent values of truth and of fakes are spread given the
  primary one, and weighs one against the other.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.attack.stream.model import Candidates, MoveLaw, Numbers, Posterior, StreamModel, require_known


def score_uniform(candidates: Candidates, model: StreamModel) -> Posterior:
    return np.full(candidates.shape, 1 / candidates.shape[2])


def score_medoid(candidates: Candidates, model: StreamModel) -> Posterior:
    near = candidates - candidates[:, :, :1]  # Two candidates are then equally far from their mean to the last bit.
    return pick_best(-np.abs(near - near.mean(axis=2, keepdims=True)))


def score_most_common(candidates: Candidates, model: StreamModel) -> Posterior:
    alike = [(candidates == candidates[:, :, slot, None]).sum(axis=2) for slot in range(candidates.shape[2])]
    return pick_best(np.stack(alike, axis=2).astype(np.float64))


def score_odds(candidates: Candidates, model: StreamModel) -> Posterior:
    p, q = require_known(model.pmf), require_known(model.fake_pmf)
    codes = candidates.astype(np.int64)
    if not ((codes == candidates) & (codes >= 0) & (codes < len(p))).all() or len(p) != len(q):
        raise ConfigError(f"candidates are codes from 0 to {len(p) - 1}")
    return normalise_weights(np.divide(p, q, out=np.full(len(p), _CERTAIN), where=q > 0)[codes])


def pick_best(scores: Numbers) -> Posterior:
    """All probability on the best of each step; ties share, up to the last bits."""
    best = scores.max(axis=2, keepdims=True)
    return normalise_weights((scores >= best - _LAST_BITS * np.abs(best)).astype(np.float64))


def normalise_weights(weights: Numbers) -> Posterior:
    """Scale weights to sum to 1 at each step; where all are 0, all candidates are equally likely."""
    total = weights.sum(axis=2, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[2])


def score_confirmation(candidates: Candidates, model: StreamModel) -> Posterior:
    asked = require_known(model.asked)
    if asked.shape != candidates.shape:
        raise ConfigError("questions are about candidates: of the same shape")
    return normalise_weights(asked.astype(np.float64))


def score_residual(candidates: Candidates, model: StreamModel) -> Posterior:
    off = np.abs(require_known(model.dependent) - require_known(model.correlation) * candidates)
    chosen = off >= off.max(axis=2, keepdims=True)
    return np.asarray(chosen / chosen.sum(axis=2, keepdims=True), np.float64)


def score_density(candidates: Candidates, model: StreamModel) -> Posterior:
    dependent, rho = require_known(model.dependent), require_known(model.correlation)
    line = require_known(model.fake_line)
    true = MoveLaw(math.sqrt(1 - rho**2)).log_density(dependent - rho * candidates)
    fake = MoveLaw(max(line.deviation, _LINE)).log_density(dependent - line.slope * candidates)
    odds: Numbers = true - fake
    weights = np.exp(odds - odds.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True), np.float64)


def score_counts(candidates: Candidates, model: StreamModel) -> Posterior:
    _, codes, often = np.unique(candidates, return_inverse=True, return_counts=True)
    return pick_best(often[codes].reshape(candidates.shape).astype(np.float64))


_CERTAIN: Final = 1e12
"""Odds of a value that cannot be a fake."""
_LAST_BITS: Final = 1e-12
_LINE: Final = 1e-9
"""Distance from a line that still counts as on it."""
