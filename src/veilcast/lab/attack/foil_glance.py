"""Attackers that look at the candidates of one step and at nothing else.

`uniform` guesses. `medoid` takes the candidate nearest to the mean of all: fakes that are the truth plus noise have it
at their centre, so it is right with about 1 / sqrt(n), whatever the noise and without any model. `most` takes the value
that most candidates share: where fakes are copies of the truth, or are so coarse that some meet, the value is known
though no message is. `odds`, for categories, takes the candidate that is likeliest to be true against likeliest to be a
fake, p / q: what breaks fakes drawn by another law than the truth's (P3's Scenario II) as soon as both are known.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.attack.foil_model import Candidates, Model, Numbers, Posterior, known


def uniform(candidates: Candidates, model: Model) -> Posterior:
    return np.full(candidates.shape, 1 / candidates.shape[2])


def medoid(candidates: Candidates, model: Model) -> Posterior:
    near = candidates - candidates[:, :, :1]  # Two candidates are then equally far from their mean to the last bit.
    return picked(-np.abs(near - near.mean(axis=2, keepdims=True)))


def most(candidates: Candidates, model: Model) -> Posterior:
    alike = [(candidates == candidates[:, :, slot, None]).sum(axis=2) for slot in range(candidates.shape[2])]
    return picked(np.stack(alike, axis=2).astype(np.float64))


def odds(candidates: Candidates, model: Model) -> Posterior:
    p, q = known(model.pmf), known(model.fake_pmf)
    codes = candidates.astype(np.int64)
    if not ((codes == candidates) & (codes >= 0) & (codes < len(p))).all() or len(p) != len(q):
        raise ConfigError(f"candidates are codes from 0 to {len(p) - 1}")
    return shares(np.divide(p, q, out=np.full(len(p), _CERTAIN), where=q > 0)[codes])


def picked(scores: Numbers) -> Posterior:
    """All on the best of each step; ties share, up to the last bits."""
    best = scores.max(axis=2, keepdims=True)
    return shares((scores >= best - _LAST_BITS * np.abs(best)).astype(np.float64))


def shares(weights: Numbers) -> Posterior:
    """Weights to numbers that sum to 1 at each step; where all are 0, nothing is known."""
    total = weights.sum(axis=2, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[2])


_CERTAIN: Final = 1e12
"""The odds of what cannot be a fake."""
_LAST_BITS: Final = 1e-12
