"""Who only counts (P3, Scenario II): the attacker that knows no law, and all of the traffic.

Fakes that are too few to level all values leave the most frequent ones standing out of the water. A value that is in
the traffic more often than others is there because it is often true: of each set the most frequent is taken.


Attackers that look at the candidates of one step and at nothing else.

`score_uniform` guesses. `score_medoid` takes the candidate nearest to the mean of all: fakes that are the truth plus
noise have it
at their centre, so it is right with about 1 / sqrt(n), whatever the noise and without any model. `score_most_common`
takes the value
that most candidates share: where fakes are copies of the truth, or are so coarse that some meet, the value is known
though no message is. `score_odds`, for categories, takes the candidate that is likeliest to be true against likeliest
to be a
fake, p / q: what breaks fakes drawn by another law than the truth's (P3's Scenario II) as soon as both are known.


Who sees the questions of P3's step 4 needs no mathematics: nobody asks about what it did not want.

A subscriber asks the publisher whether a notification is authentic, and asks only for those that match its authentic
subscription. So whoever sees the question knows which of the subscriptions is authentic, and that the event is one of
those asked about at that step; fakes that lie in the same range are asked about, too, and are all that is left to hide
among. Positions from a shared key need no question.


Attackers on events of two numbers, a master and a slave, both standard normal and with a correlation of rho.

`score_residual` looks at how far each slave is from the line of regression: fakes that lie on it leave the truth beside
it.
`score_density` knows how slaves of truth and of fakes are spread, given the master, and weighs one against the
other."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    """All on the best of each step; ties share, up to the last bits."""
    best = scores.max(axis=2, keepdims=True)
    return normalise_weights((scores >= best - _LAST_BITS * np.abs(best)).astype(np.float64))


def normalise_weights(weights: Numbers) -> Posterior:
    """Weights to numbers that sum to 1 at each step; where all are 0, nothing is known."""
    total = weights.sum(axis=2, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[2])


_CERTAIN: Final = 1e12
"""The odds of what cannot be a fake."""
_LAST_BITS: Final = 1e-12


def score_confirmation(candidates: Candidates, model: StreamModel) -> Posterior:
    asked = require_known(model.asked)
    if asked.shape != candidates.shape:
        raise ConfigError("questions are about candidates: of the same shape")
    return normalise_weights(asked.astype(np.float64))


Pairs: TypeAlias = NDArray[np.float64]
"""Of [streams, steps, n, 2]."""


def score_residual(candidates: Pairs, rho: float) -> Posterior:
    off = np.abs(candidates[..., 1] - rho * candidates[..., 0])
    chosen = off >= off.max(axis=2, keepdims=True)
    return np.asarray(chosen / chosen.sum(axis=2, keepdims=True), np.float64)


def score_density(candidates: Pairs, rho: float, slope: float, deviation: float) -> Posterior:
    """`slope` and `deviation` are those of the fakes' slaves."""
    master, slave = candidates[..., 0], candidates[..., 1]
    true = MoveLaw(math.sqrt(1 - rho**2)).log_density(slave - rho * master)
    fake = MoveLaw(max(deviation, _LINE)).log_density(slave - slope * master)
    odds: Numbers = true - fake
    weights = np.exp(odds - odds.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True), np.float64)


_LINE: Final = 1e-9
"""How far from a line is still on it."""


def score_counts(candidates: Candidates, model: StreamModel) -> Posterior:
    _, codes, often = np.unique(candidates, return_inverse=True, return_counts=True)
    return pick_best(often[codes].reshape(candidates.shape).astype(np.float64))
