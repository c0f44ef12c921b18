"""Kalman filters over candidates, in three readings of P3's sentence about its attacker.

The state is the value, which moves with deviation q and is observed with deviation r. A prediction has a mean and a
variance; an observation moves the mean by the gain. All three readings choose the candidate nearest to the prediction.
The paper's filter is extended, because the moves of its prices grow with them; on logarithms the plain filter is exact.

`NEAREST` has one filter, updated with its own choice. `BANK` has one for each slot, updated with the slot's value, and
chooses the slot that fits its own filter best. `BY_MEAN` has one, updated with the mean of all candidates.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit

Numbers: TypeAlias = NDArray[np.float64]

NEAREST: Final = 0
BANK: Final = 1
BY_MEAN: Final = 2


@jit
def innovation_distances(candidates: Numbers, reading: int, q: float, drift: float, r: float) -> Numbers:
    """[streams, steps, n]: the distance of each candidate from the prediction. At the first step all are 0."""
    streams, steps, n = candidates.shape
    filters = n if reading == BANK else 1
    noise = r * r * (n - 1) / (n * n) if reading == BY_MEAN else r * r
    result = np.zeros(candidates.shape)
    mean, variance = np.empty(filters), np.empty(filters)
    for stream in range(streams):
        variance[:] = r * r
        for one in range(filters):
            mean[one] = candidates[stream, 0, one] if reading == BANK else candidates[stream, 0].mean()
        for step in range(1, steps):
            values, far = candidates[stream, step], result[stream, step]
            for one in range(filters):
                mean[one] += drift
                variance[one] += q * q
            for i in range(n):
                far[i] = abs(values[i] - mean[i if reading == BANK else 0])
            for one in range(filters):
                if reading == NEAREST:
                    seen = values[np.argmin(far)]
                else:
                    seen = values[one] if reading == BANK else values.mean()
                gain = variance[one] / (variance[one] + noise)
                mean[one] += gain * (seen - mean[one])
                variance[one] *= 1 - gain
    return result
