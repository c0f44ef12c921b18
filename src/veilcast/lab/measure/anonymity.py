"""Anonymity sets (P0 Eq. 4): with how many others would one have to be named to be named at all?

An attacker's scores are an order in which it suspects. Whoever names a subscriber by them also names all who are as
suspect or more. Those of these who do not subscribe are whom it hides among; with itself they are its anonymity set. So
a set of one is a subscriber who is named without a single false alarm, however many others are. P0 asks that no set be
smaller than k, so the smallest counts; beside it stand the mean, and the size that all but 5 of 100 have at least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.measure.accuracy import Mask


def anonymity_set_sizes(scores: NDArray[np.float64], positive: Mask) -> NDArray[np.int64]:
    """Of the set of each positive node, in order."""
    others = np.sort(scores[~positive])
    found: NDArray[np.int64] = 1 + len(others) - np.searchsorted(others, scores[positive], side="left")
    return found


def summarise_sets(sizes: NDArray[np.int64]) -> dict[str, float]:
    """What is said about them, if there are any."""
    if not len(sizes):
        return {}
    return {
        "set_mean": float(np.mean(sizes)),
        "set_p5": float(np.quantile(sizes, 0.05, method="lower")),
        "set_min": float(np.min(sizes)),
    }
