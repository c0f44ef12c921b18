"""Information and probabilities of an attacker: mutual information, calibration, and entropy.

Mutual information: how many bits about roles are in an observation? Scores are put into bins of about equal counts, and
the information between bin and role is estimated from the counts. This estimate is too large, because random counts are
uneven too. Miller and Madow's correction (1955) subtracts the expected excess; the rest, and the effect of bins and
ties, shows when the roles are shuffled. The mean over shuffles is the floor, and only information above it is real.

Calibration: do an attacker's probabilities mean what they say? Of all nodes that an attacker holds to subscribe with a
probability near p, a share p should. Nodes are put into bins of about equal counts by their probability. The mean
absolute difference between claimed and true shares is the expected calibration error (Naeini and others 2015). It is
never 0, because small bins differ by chance. The floor is its expected value if every probability were right. Only an
error well above the floor says that entropies of these probabilities cannot be trusted.

Entropy (Serjantov and Danezis 2002): how uncertain is an attacker with a probability for each candidate, exactly one of
which is the target? Entropy is the mean number of yes-no questions left; 2 to its power is the size of a uniform set
that would be as hard to search. Divided by its maximum it is the degree of anonymity (Diaz and others 2002).
Min-entropy looks at the best guess alone, which a rational attacker makes. All describe the network only if the
probabilities are calibrated.
"""

from __future__ import annotations

from math import log2
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.measure.accuracy import Mask


class Information(NamedTuple):
    bits: float
    """Bits above the floor about one node's role; slightly negative at times."""
    floor: float
    surprise: float
    """Share of shuffles with as much information or more; small if there is real information."""


def mutual_information(scores: NDArray[np.float64], positive: Mask, seed: int, *, shuffles: int = 200) -> Information:
    bins = equal_count_bins(scores)
    found = _corrected_bits(bins, positive)
    rng = np.random.default_rng(seed)
    by_chance = [_corrected_bits(bins, rng.permutation(positive)) for _ in range(shuffles)]
    floor = float(np.mean(by_chance))
    as_much = sum(value >= found for value in by_chance)
    return Information(found - floor, floor, (1 + as_much) / (1 + shuffles))


def equal_count_bins(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bins of about equal counts; equal scores share a bin."""
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, _BINS + 1)[1:-1]))
    found: NDArray[np.int64] = np.searchsorted(edges, scores, side="left")
    return found


def measure_posterior(posterior: NDArray[np.float64]) -> dict[str, float]:
    """Entropy and min-entropy in bits, the effective size, the number of possible candidates, and the degree."""
    total = float(posterior.sum())
    if total <= 0 or (posterior < 0).any():
        raise ConfigError("probabilities are not negative, and not all of them are 0")
    likely = posterior[posterior > 0] / total
    # The entropy of a certainty is -0.0; show 0.
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
    """Claimed minus true share over all nodes; above 0 if the attacker suspects too many."""


def measure_calibration(said: NDArray[np.float64], positive: Mask, seed: int, *, draws: int = 200) -> Calibration:
    """Calibration of one probability for each node, each about that node alone."""
    if not said.size or said.min() < 0 or said.max() > 1:
        raise ConfigError("there must be probabilities, and between 0 and 1")
    bins = equal_count_bins(said)
    rng = np.random.default_rng(seed)
    by_chance = [_error(bins, said, rng.random(said.size) < said) for _ in range(draws)]
    return Calibration(_error(bins, said, positive), float(np.mean(by_chance)), float(said.mean() - positive.mean()))


def _corrected_bits(bins: NDArray[np.int64], positive: Mask) -> float:
    counts = np.bincount(2 * bins + positive, minlength=2 * (int(bins.max()) + 1)).reshape(-1, 2)
    return _entropy(counts.sum(axis=0)) + _entropy(counts.sum(axis=1)) - _entropy(counts.reshape(-1))


def _entropy(counts: NDArray[np.int64]) -> float:
    """Entropy in bits, corrected for small counts."""
    total, some = counts.sum(), counts[counts > 0]
    share = some / total
    return float(-np.sum(share * np.log2(share)) + (len(some) - 1) / (2 * total * np.log(2)))


def _error(bins: NDArray[np.int64], said: NDArray[np.float64], positive: Mask) -> float:
    return float(np.abs(np.bincount(bins, said - positive)).sum() / said.size)


_BINS: Final = 10
