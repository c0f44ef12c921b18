"""Costs of interactions by their number of edges: histograms, and means and quantiles over them.

Costs of a path soon exceed 64 bits: they are Python integers, one for each number of edges, and rise with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.broker_tree import Brokers
from veilcast.lab.models.user_placement import Matrix

HopHistogram: TypeAlias = NDArray[np.float64]
"""Number of interactions by number of edges."""


def hop_histogram(matrix: Matrix, edges: Brokers) -> HopHistogram:
    return np.bincount(edges.ravel(), weights=matrix.ravel()).astype(np.float64)


def mean_cost(counted: HopHistogram, costs: Sequence[int]) -> float:
    return float(counted @ np.array(costs[: counted.size], np.float64) / counted.sum())


def cost_quantile(counted: HopHistogram, costs: Sequence[int], share: float) -> int:
    """The smallest cost that this share of interactions does not exceed."""
    at = int(np.searchsorted(np.cumsum(counted), share * counted.sum() * (1 - _ROUNDING)))
    return costs[min(at, counted.size - 1)]


_ROUNDING: Final = 1e-12
