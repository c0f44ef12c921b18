"""Anonymity sets (P0 Eq. 4): how many nodes must an attacker name to name one subscriber?

An attacker's scores are an order of suspicion. To name a subscriber by them, the attacker also names all nodes that are
as suspect or more. Those of these that do not subscribe hide the subscriber; with itself they are its anonymity set. So
a set of one is a subscriber that is named without a single false alarm. P0 asks that no set be smaller than k, so the
smallest counts. Beside it stand the mean and the 5 % quantile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.measure.accuracy import Mask


def anonymity_set_sizes(scores: NDArray[np.float64], positive: Mask) -> NDArray[np.int64]:
    """Size of the anonymity set of each positive node, in order."""
    others = np.sort(scores[~positive])
    found: NDArray[np.int64] = 1 + len(others) - np.searchsorted(others, scores[positive], side="left")
    return found


def summarise_sets(sizes: NDArray[np.int64]) -> dict[str, float]:
    """Mean, 5 % quantile and minimum; empty if there are no sets."""
    if not len(sizes):
        return {}
    return {
        "set_mean": float(np.mean(sizes)),
        "set_p5": float(np.quantile(sizes, 0.05, method="lower")),
        "set_min": float(np.min(sizes)),
    }
