"""Attackers that look for what comes again: fakes drawn anew do not stay, and cached ones return too faithfully.

`intersection`: where the truth lasts and fakes are drawn at each step, it is what neighbouring sets share. The longer a
value is in the set without a break, the likelier it is true.

`repeats`: where a queue of past vectors brings the same fakes back with a value, a set returns as often as its truth
is true. How often values are true is public (P3's Scenario III), so of a set that came c times in N steps the candidate
v is true with a likelihood of p(v)^c e^(-N p(v)).

`newcomer`: a set that was not cached has a truth that never was true before, so values that were in few different sets
are likelier than others; this needs no probabilities.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.foil_glance import picked, shares
from veilcast.lab.attack.foil_model import Candidates, Model, Numbers, Posterior, known
from veilcast.lab.kernels import foil_repeats


def intersection(candidates: Candidates, model: Model) -> Posterior:
    codes, many = _coded(candidates)
    return picked(foil_repeats.stays(codes, many).astype(np.float64))


def repeats(candidates: Candidates, model: Model) -> Posterior:
    p = known(model.pmf)
    values = candidates.astype(np.int64)
    if not ((values == candidates) & (values >= 0) & (values < len(p))).all():
        raise ConfigError(f"candidates are codes from 0 to {len(p) - 1}")
    count, ago = foil_repeats.returns(*_sets(values))
    likely = np.log(np.maximum(p, _RARE))[values] * count[:, :, None] - p[values] * ago[:, :, None]
    return weighed(likely)


def newcomer(candidates: Candidates, model: Model) -> Posterior:
    codes, many = _coded(candidates)
    count, _ = foil_repeats.returns(*_sets(codes))
    return picked(-foil_repeats.appearances(codes, count == 0, many).astype(np.float64))


def weighed(logs: Numbers) -> Posterior:
    """Logarithms of likelihoods to shares."""
    return shares(np.exp(logs - logs.max(axis=2, keepdims=True)))


def _coded(candidates: Candidates) -> tuple[NDArray[np.int64], int]:
    values, codes = np.unique(candidates, return_inverse=True)
    return codes.reshape(candidates.shape), len(values)


def _sets(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    found, sets = np.unique(foil_repeats.fingerprints(codes), return_inverse=True)
    return sets.reshape(codes.shape[:2]), len(found)


_RARE: Final = 1e-300
