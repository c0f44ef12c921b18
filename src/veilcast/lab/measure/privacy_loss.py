"""Empirical privacy loss: the least epsilon that an attacker's success leaves possible.

A mechanism that is (epsilon, delta)-private keeps every test of "does it subscribe?" to TPR <= e^epsilon FPR + delta,
and the same for the opposite answer, TNR <= e^epsilon FNR + delta (Kairouz and others 2015). So a test that was seen to
do better refutes every smaller epsilon. Both rates are known from counts only, so the bounds of Clopper and Pearson
(1934) take their place, each on the side that makes epsilon smaller: what is said is a lower bound, and holds for all
but a share `miss` of what might have been drawn (Jagielski and others 2020). It says nothing of better attackers.

Who tries several thresholds and keeps the best would find some loss in noise; so the share that may miss is divided
among all that are tried, and those are places in the order of the others, fixed beforehand. Counts are taken to be
independent: of nodes of one run they are not quite, so a bound that matters is taken over many runs, a node from each.
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
    """The lower bound from one test: how many it named of those that are so, and of those that are not."""
    # Two inequalities of two rates each: four bounds, any of which may miss.
    part = miss / 4
    found = [
        _ratio(lower_bound(hits, positives, part) - delta, upper_bound(alarms, others, part)),
        _ratio(lower_bound(others - alarms, others, part) - delta, upper_bound(positives - hits, positives, part)),
    ]
    return max(0.0, *found)


def lower_bound(count: int, of: int, miss: float) -> float:
    """The least probability under which so many, or more, would still come with probability `miss`."""
    return float(betaincinv(count, of - count + 1, miss)) if count else 0.0


def upper_bound(count: int, of: int, miss: float) -> float:
    """The largest probability under which so many, or fewer, would still come with probability `miss`."""
    return float(betaincinv(count + 1, of - count, 1 - miss)) if count < of else 1.0


def _ratio(above: float, below: float) -> float:
    return log(above / below) if above > 0 else 0.0


SHARES: Final = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
"""What share of the nodes each threshold names that is tried."""
