"""How well scores order subscribers before others, whatever threshold one would name them by.

`auc` is the probability that a subscriber scores higher than another node, ties counting half; `true_positives_at` the
share of subscribers found if so many of the others may be named wrongly; `precision_at` the share of subscribers among
so many with the highest scores. Where scores are tied, as a rule's few values are, the answer is the mean over all
orders of the tied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from veilcast.lab.measure.accuracy import Mask, Truth

Scores = NDArray[np.float64]


def of_scores(truth: Truth, scores: Scores) -> dict[str, float]:
    """The rank measures among all nodes but the publisher; none if all of them are of one kind."""
    guess, positive = scores[truth.candidates], truth.subscribes[truth.candidates]
    if positive.all() or not positive.any():
        return {}
    return {
        "auc": auc(guess, positive),
        "tpr_1": true_positives_at(guess, positive, 0.01),
        "tpr_0_1": true_positives_at(guess, positive, 0.001),
        "precision_at_size": precision_at(guess, positive, int(np.count_nonzero(positive))),
    }


def auc(scores: Scores, positive: Mask) -> float:
    """The rank-sum statistic; half where there is nothing to compare."""
    first, second = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))
    if not first or not second:
        return 0.5
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - first * (first + 1) / 2) / (first * second))


def auc_by_chance(positives: int, others: int) -> tuple[float, float]:
    """Where 95 of 100 values lie if scores tell nothing and are not tied; ties bring them nearer to a half."""
    spread = 1.96 * ((positives + others + 1) / (12 * positives * others)) ** 0.5
    return max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)


def true_positives_at(scores: Scores, positive: Mask, false_positives: float) -> float:
    """The share of the positive ones named when this share of the others is."""
    levels = np.unique(scores)[::-1]
    hits = np.array([0.0, *(np.mean(scores[positive] >= level) for level in levels)])
    alarms = np.array([0.0, *(np.mean(scores[~positive] >= level) for level in levels)])
    # Of several thresholds with the same alarms the lowest counts: its hits cost nothing.
    last = np.append(np.diff(alarms) > 0, True)
    last[0] = last[0] or alarms[1] > 0
    return float(np.interp(false_positives, alarms[last], hits[last]))


def precision_at(scores: Scores, positive: Mask, size: int) -> float:
    """The share of positive ones among the `size` with the highest scores."""
    edge = np.sort(scores)[::-1][size - 1]
    above, tied = scores > edge, scores == edge
    places = size - np.count_nonzero(above)
    return float((np.count_nonzero(positive[above]) + places * np.mean(positive[tied])) / size)
