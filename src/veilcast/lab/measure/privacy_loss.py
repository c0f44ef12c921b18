"""Empirical privacy loss: the smallest epsilon that an attacker's success leaves possible.

An (epsilon, delta)-private mechanism keeps every test of "does it subscribe?" to TPR <= e^epsilon FPR + delta, and for
the opposite answer to TNR <= e^epsilon FNR + delta (Kairouz and others 2015). A test that does better refutes every
smaller epsilon. Both rates are known from counts only, so the bounds of Clopper and Pearson (1934) take their place,
each on the side that makes epsilon smaller. The result is a lower bound that holds except for a share `miss` of the
possible draws (Jagielski and others 2020). It says nothing about better attackers.

Choosing the best of several thresholds would find some loss in noise. So `miss` is divided among all thresholds that
are tried, and those are fixed quantiles. Counts are assumed independent. Nodes of one run are not quite, so a bound
that matters is taken over many runs, with a node from each.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from veilcast.lab.measure.accuracy import Mask


def epsilon_of_scores(
    scores: NDArray[np.float64],
    positive: Mask,
    *,
    delta: float = 0.0,
    miss: float = 0.05,
    shares: NDArray[np.float64] | None = None,
) -> float:
    """The best lower bound over thresholds that name these shares of the nodes."""
    tried = SHARES if shares is None else shares
    best = 0.0
    for level in np.quantile(scores, 1 - tried, method="higher"):
        named = scores >= level
        hits, alarms = np.count_nonzero(named & positive), np.count_nonzero(named & ~positive)
        counts = int(hits), int(np.count_nonzero(positive)), int(alarms), int(np.count_nonzero(~positive))
        best = max(best, epsilon_of_counts(*counts, delta=delta, miss=miss / tried.size))
    return best


def epsilon_of_counts(
    hits: int, positives: int, alarms: int, others: int, *, delta: float = 0.0, miss: float = 0.05
) -> float:
    """The lower bound from one test: the number of named positives (`hits`) and of named others (`alarms`)."""
    # Two inequalities of two rates each: four bounds, any of which may miss.
    part = miss / 4
    found = [
        _ratio(lower_bound(hits, positives, part) - delta, upper_bound(alarms, others, part)),
        _ratio(lower_bound(others - alarms, others, part) - delta, upper_bound(positives - hits, positives, part)),
    ]
    return max(0.0, *found)


def lower_bound(count: int, of: int, miss: float) -> float:
    """The smallest probability under which `count` or more would still come with probability `miss`."""
    return float(betaincinv(count, of - count + 1, miss)) if count else 0.0


def upper_bound(count: int, of: int, miss: float) -> float:
    """The largest probability under which `count` or fewer would still come with probability `miss`."""
    return float(betaincinv(count + 1, of - count, 1 - miss)) if count < of else 1.0


def _ratio(above: float, below: float) -> float:
    return log(above / below) if above > 0 else 0.0


SHARES: Final = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
"""Shares of the nodes that the tried thresholds name."""
