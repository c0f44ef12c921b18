"""Statistical disclosure (Danezis 2003): who does more when the topic is busy than when it is not?

Rounds are windows of time. In some of them a note of the topic was about; in all of them nodes did this and that, much
of it for others' sake. The mean of what a node did in the former less the mean of what it did in the latter is what the
topic makes it do: all else is in both, and falls away as the square root of the number of rounds. No model of the
network is needed, and no rate of anything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores(busy: NDArray[np.bool_], activity: NDArray[np.float64]) -> NDArray[np.float64]:
    """By node, what it did more in rounds that were busy; `activity` has a row for each round, a column for each node.

    Where all rounds are of one kind there is nothing to compare, and nothing is said.
    """
    if busy.all() or not busy.any():
        return np.zeros(activity.shape[1])
    more: NDArray[np.float64] = activity[busy].mean(axis=0) - activity[~busy].mean(axis=0)
    return more
