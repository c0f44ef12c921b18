"""Intervals by the bootstrap over runs (Efron 1979): what else might have come out of other runs of the same kind?

Nodes of one run are not independent: they share an overlay, a publisher and an attacker's luck. Runs are. So runs are
drawn, with replacement, as many as there are, and the statistic is taken of each such draw; of many draws the middle 95
of 100 are the interval. It holds for any statistic of whole runs, as an AUC of all their nodes taken together, where
Student's interval of a mean (`summary`) does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from veilcast.errors import ConfigError

Run = TypeVar("Run")


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def by_run(
    runs: Sequence[Run],
    statistic: Callable[[Sequence[Run]], float],
    seed: int,
    *,
    draws: int = 1000,
    miss: float = 0.05,
) -> Interval:
    """The statistic of all runs, and where it lies but for a share `miss` of the draws.

    Who looks at several attackers, and would be alarmed by any of them, divides `miss` by their number.
    """
    if not runs:
        raise ConfigError("there are no runs to draw from")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(runs), size=(draws, len(runs)))
    values = [statistic([runs[one] for one in draw]) for draw in chosen.tolist()]
    low, high = np.quantile(values, [miss / 2, 1 - miss / 2])
    return Interval(statistic(runs), float(low), float(high))
