"""How well an order was recovered: Spearman's rank correlation, up to mirroring, for what is left of the value is then
one bit for all of them. Tied places count as their mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata


def recovered(place: NDArray[np.float64], value: NDArray[np.int64]) -> float:
    """1 if all values are in order, or all in the reverse one; 0 where nothing can be told."""
    found, true = rankdata(place), rankdata(value)
    if found.std() == 0 or true.std() == 0:
        return 0.0
    return abs(float(np.corrcoef(found, true)[0, 1]))
