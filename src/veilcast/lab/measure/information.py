"""Calibration: do an attacker's probabilities mean what they say?

Of all nodes that an attacker holds to subscribe with a probability near p, a share p should. Nodes are put into bins of
about equally many by their probability; in each, what was said differs from what was so, and the mean of the
differences, by size, is the expected calibration error (Naeini and others 2015). It is never 0: in a bin of few nodes
chance alone makes a difference. What it comes to on the average if every probability were right is the floor, and only
an error well above it says that entropies of these probabilities are not to be believed.


Mutual information: how many bits about roles are in an observation, whoever is to read them?

Scores are put into bins of about equally many nodes, and the information between bin and role is taken from their
counts. Estimated so it is too large: chance, too, makes counts uneven. Miller and Madow's correction (1955) takes off
what that comes to on the average; what is left of it, and what bins and ties add, is seen by shuffling the roles. The
mean over shuffles is the floor, and only what lies above it is in the observation.


How uncertain an attacker is who holds a probability for each candidate, exactly one of whom is sought.

Entropy (Serjantov and Danezis 2002) is how many questions of yes or no are left on the average, two to its power the
size of a set that would be as hard to search; divided by what it would be if nothing were known it is the degree of
anonymity (Diaz and others 2002). Min-entropy looks at the best guess alone, which is what a rational attacker makes.
All say something about the network only if the probabilities mean what they say."""

from __future__ import annotations

from math import log2
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.measure.accuracy import Mask


class Information(NamedTuple):
    bits: float
    """Above the floor, about one node's role; it may come out a little below 0."""
    floor: float
    surprise: float
    """The share of shuffles with as much information or more: small if there is some."""


def mutual_information(scores: NDArray[np.float64], positive: Mask, seed: int, *, shuffles: int = 200) -> Information:
    bins = equal_count_bins(scores)
    found = _corrected(bins, positive)
    rng = np.random.default_rng(seed)
    by_chance = [_corrected(bins, rng.permutation(positive)) for _ in range(shuffles)]
    floor = float(np.mean(by_chance))
    as_much = sum(value >= found for value in by_chance)
    return Information(found - floor, floor, (1 + as_much) / (1 + shuffles))


def equal_count_bins(scores: NDArray[np.float64]) -> NDArray[np.int64]:
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


def measure_posterior(posterior: NDArray[np.float64]) -> dict[str, float]:
    """Bits of entropy and min-entropy, the effective size, how many are possible, and the degree."""
    total = float(posterior.sum())
    if total <= 0 or (posterior < 0).any():
        raise ConfigError("probabilities are not negative, and not all of them are 0")
    likely = posterior[posterior > 0] / total
    # The sum of a certainty is -0; nobody should read that.
    entropy = max(0.0, -float(np.sum(likely * np.log2(likely))))
    return {
        "entropy": entropy,
        "min_entropy": max(0.0, -log2(float(likely.max()))),
        "effective_size": 2.0**entropy,
        "possible": float(len(likely)),
        "degree": entropy / log2(len(posterior)) if len(posterior) > 1 else 0.0,
    }


class Calibration(NamedTuple):
    error: float
    floor: float
    excess: float
    """What was said less what was so, over all: above 0 for who suspects too many."""


def measure_calibration(said: NDArray[np.float64], positive: Mask, seed: int, *, draws: int = 200) -> Calibration:
    """Of one probability for each node, each about that node alone."""
    if not said.size or said.min() < 0 or said.max() > 1:
        raise ConfigError("there must be probabilities, and between 0 and 1")
    bins = equal_count_bins(said)
    rng = np.random.default_rng(seed)
    by_chance = [_error(bins, said, rng.random(said.size) < said) for _ in range(draws)]
    return Calibration(_error(bins, said, positive), float(np.mean(by_chance)), float(said.mean() - positive.mean()))


def _error(bins: NDArray[np.int64], said: NDArray[np.float64], positive: Mask) -> float:
    return float(np.abs(np.bincount(bins, said - positive)).sum() / said.size)
