"""A bound on every classifier: the error of the nearest neighbour.

That no attacker of ours tells two kinds of nodes apart says little about attackers that nobody has written. The nearest
neighbour says more (Cover and Hart 1967; applied to traffic analysis by Cherubin 2017). With many examples its error e
is at most twice the least error r that any classifier can reach on the same features, where both kinds are equally
likely:

    e <= 2 r (1 - r),  so  r >= (1 - sqrt(1 - 2 e)) / 2

An error of a half means that nothing can be told from these features. Assumptions: the bound is one of the limit of
many examples, and it is about these features only. Features that leave something out hide it from the bound, too.

Each feature is scaled by its spread among the examples. There are equally many examples of both kinds.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import LocalError
from veilcast.lab.measure.accuracy import Mask

Features = NDArray[np.float64]


def nearest_neighbour_error(examples: Features, having: Mask, asked: Features, truth: Mask) -> float:
    """The mean of both kinds' shares that the nearest example names wrongly. Ties count half.

    `asked` are nodes of networks that have no examples.
    """
    kinds = [examples[having], examples[~having]]
    many = min(map(len, kinds))
    if not many or not truth.any() or truth.all():
        raise LocalError("the nearest neighbour needs examples of both kinds, and nodes of both")
    kinds = [kind[:many] for kind in kinds]
    spread = np.vstack(kinds).std(axis=0)
    spread[spread == 0] = np.inf  # A feature that is the same for all tells nothing.
    positive, negative = (_nearest(kind / spread, asked / spread) for kind in kinds)
    wrong = np.where(positive == negative, 0.5, (positive < negative) != truth)
    return float(np.mean(wrong[truth]) + np.mean(wrong[~truth])) / 2


def least_error(error: float) -> float:
    """The least error of any classifier, from the nearest neighbour's: between 0 and a half."""
    return (1 - sqrt(max(0.0, 1 - 2 * min(error, 0.5)))) / 2


def _nearest(examples: Features, asked: Features) -> Features:
    """The squared distance of each row to the nearest example."""
    return np.array([((examples - row) ** 2).sum(axis=1).min() for row in asked])
