"""How well scores rank subscribers above others, whatever the threshold.

`auc` is the probability that a subscriber scores higher than another node, with ties counting half. `true_positives_at`
is the share of subscribers found if a given share of the others may be named wrongly. `precision_at` is the share of
subscribers among a given number of nodes with the highest scores. Where scores are tied, as the few values of a rule
are, the result is the mean over all orders of the tied nodes.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from veilcast.lab.measure.accuracy import Mask, RunTruth

Scores = NDArray[np.float64]


class RankCurve(NamedTuple):
    """Named nodes as the threshold falls from above all scores to the smallest: counts for each distinct score, after
    0."""

    hits: NDArray[np.int64]
    alarms: NDArray[np.int64]

    @classmethod
    def from_scores(cls, scores: Scores, positive: Mask) -> RankCurve:
        order = np.argsort(-scores)
        ranked = scores[order]
        last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
        hits = np.cumsum(positive[order])[last]
        return cls(np.append(0, hits), np.append(0, last + 1 - hits))

    def auc(self) -> float:
        """0.5 if there is nothing to compare."""
        pairs = int(self.hits[-1]) * int(self.alarms[-1])
        ordered = (self.hits[1:] + self.hits[:-1]) @ (self.alarms[1:] - self.alarms[:-1])
        return int(ordered) / 2 / pairs if pairs else 0.5

    def true_positives_at(self, false_positives: float) -> float:
        # Of several thresholds with the same alarms the lowest counts: its further hits cost nothing.
        last = np.append(self.alarms[1:] > self.alarms[:-1], True)
        alarms, hits = self.alarms[last] / self.alarms[-1], self.hits[last] / self.hits[-1]
        return float(np.interp(false_positives, alarms, hits))

    def precision_at(self, size: int) -> float:
        named = self.hits + self.alarms
        edge = int(np.searchsorted(named, size))
        above, tied = named[edge - 1], named[edge] - named[edge - 1]
        of_tied = (self.hits[edge] - self.hits[edge - 1]) / tied
        return float((self.hits[edge - 1] + (size - above) * of_tied) / size)


def measure_candidates(truth: RunTruth, scores: Scores) -> dict[str, float]:
    """The rank measures over all nodes except the publisher; empty if all of them are of one kind."""
    return measure_ranking(scores[truth.candidates], truth.subscribes[truth.candidates])


def measure_ranking(scores: Scores, positive: Mask) -> dict[str, float]:
    """The rank measures over these nodes; empty if all of them are of one kind."""
    curve = RankCurve.from_scores(scores, positive)
    if not curve.hits[-1] or not curve.alarms[-1]:
        return {}
    return {
        "auc": curve.auc(),
        "tpr_1": curve.true_positives_at(0.01),
        "tpr_0_1": curve.true_positives_at(0.001),
        "precision_at_size": curve.precision_at(int(curve.hits[-1])),
    }


def auc(scores: Scores, positive: Mask) -> float:
    """The rank-sum statistic; 0.5 if there is nothing to compare."""
    return RankCurve.from_scores(scores, positive).auc()


def auc_by_chance(positives: int, others: int) -> tuple[float, float]:
    """The 95 % interval if scores tell nothing and are not tied; ties bring values nearer to 0.5."""
    spread = 1.96 * ((positives + others + 1) / (12 * positives * others)) ** 0.5
    return max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)


def auc_interval(value: float, positives: int, others: int, miss: float = 0.05) -> tuple[float, float]:
    """The interval of one network's AUC, except for a share `miss`, from the AUC of some of its nodes.

    It holds all values from which this one is within the allowed number of standard errors, by the error that those
    values themselves would have (Hanley and McNeil 1982; Newcombe 2006). So a perfect order of few nodes is not taken
    for certainty. Nodes count as independent.
    """
    far, balanced = -float(ndtri(miss / 2)), (positives + others) / 2 - 1

    def away(truth: float) -> float:
        spread = 1 + balanced * ((1 - truth) / (2 - truth) + truth / (1 + truth))
        return abs(value - truth) - far * sqrt(truth * (1 - truth) * spread / (positives * others))

    # At 0 and 1 the standard error is 0, so `away` has no sign change there.
    inside = min(max(value, _EDGE), 1 - _EDGE)
    low = brentq(away, 0.0, inside) if value > 0 else 0.0
    high = brentq(away, inside, 1.0) if value < 1 else 1.0
    return float(low), float(high)


def true_positives_at(scores: Scores, positive: Mask, false_positives: float) -> float:
    """The share of positive nodes named when this share of the others is."""
    return RankCurve.from_scores(scores, positive).true_positives_at(false_positives)


def precision_at(scores: Scores, positive: Mask, size: int) -> float:
    """The share of positive nodes among the `size` with the highest scores."""
    return RankCurve.from_scores(scores, positive).precision_at(size)


_EDGE: Final = 1e-9
