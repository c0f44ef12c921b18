"""What interactions cost, from the edges that they take: histograms, and means and quantiles over them.

Costs of a path grow beyond 64 bits soon: they are Python's integers, by the number of edges, and rise with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.broker_tree import Brokers
from veilcast.lab.models.user_placement import Matrix

HopHistogram: TypeAlias = NDArray[np.float64]
"""By the number of edges, how many interactions take so many."""


def hop_histogram(matrix: Matrix, edges: Brokers) -> HopHistogram:
    return np.bincount(edges.ravel(), weights=matrix.ravel()).astype(np.float64)


def mean_cost(counted: HopHistogram, costs: Sequence[int]) -> float:
    return float(counted @ np.array(costs[: counted.size], np.float64) / counted.sum())


def cost_quantile(counted: HopHistogram, costs: Sequence[int], share: float) -> int:
    """The least cost that so many interactions do not exceed."""
    at = int(np.searchsorted(np.cumsum(counted), share * counted.sum() * (1 - _ROUNDING)))
    return costs[min(at, counted.size - 1)]


_ROUNDING: Final = 1e-12
