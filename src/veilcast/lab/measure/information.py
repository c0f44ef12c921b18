"""Mutual information: how many bits about roles are in an observation, whoever is to read them?

Scores are put into bins of about equally many nodes, and the information between bin and role is taken from their
counts. Estimated so it is too large: chance, too, makes counts uneven. Miller and Madow's correction (1955) takes off
what that comes to on the average; what is left of it, and what bins and ties add, is seen by shuffling the roles. The
mean over shuffles is the floor, and only what lies above it is in the observation.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.measure.accuracy import Mask


class Information(NamedTuple):
    bits: float
    """Above the floor, about one node's role; it may come out a little below 0."""
    floor: float
    surprise: float
    """The share of shuffles with as much information or more: small if there is some."""


def between(scores: NDArray[np.float64], positive: Mask, seed: int, *, shuffles: int = 200) -> Information:
    bins = bins_of(scores)
    found = _corrected(bins, positive)
    rng = np.random.default_rng(seed)
    by_chance = [_corrected(bins, rng.permutation(positive)) for _ in range(shuffles)]
    floor = float(np.mean(by_chance))
    as_much = sum(value >= found for value in by_chance)
    return Information(found - floor, floor, (1 + as_much) / (1 + shuffles))


def bins_of(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """About equally many in each; those with the same score are together."""
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, _BINS + 1)[1:-1]))
    found: NDArray[np.int64] = np.searchsorted(edges, scores, side="left")
    return found


def _corrected(bins: NDArray[np.int64], positive: Mask) -> float:
    counts = np.bincount(2 * bins + positive, minlength=2 * (int(bins.max()) + 1)).reshape(-1, 2)
    return _entropy(counts.sum(axis=0)) + _entropy(counts.sum(axis=1)) - _entropy(counts.reshape(-1))


def _entropy(counts: NDArray[np.int64]) -> float:
    """In bits, corrected for how few were counted."""
    total, some = counts.sum(), counts[counts > 0]
    share = some / total
    return float(-np.sum(share * np.log2(share)) + (len(some) - 1) / (2 * total * np.log(2)))


_BINS: Final = 10
