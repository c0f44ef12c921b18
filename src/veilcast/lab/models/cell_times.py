"""Model of the times at which cells leave, for hours of many links; a test compares it with `link.pacing`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.link.pacing import JITTER_SHARE, STEP_SHARE, STRETCH_DRAWS, STRETCH_PPB, period_us


def cell_times(
    rng: np.random.Generator, *, rate: int, seconds: float, skew_ppm: float, walks: bool, stretches: bool
) -> NDArray[np.int64]:
    """The cells of one link, in microseconds of true time. `skew_ppm` above 0 is a sender's clock that runs fast.

    Slots are a grid of the sender's clock if neither `walks` nor `stretches` is set. Of more than `CELLS_MAX` cells the
    observer keeps about that number, evenly spaced.
    """
    period, cells = period_us(rate), int(seconds * rate)
    thin = max(1, cells // CELLS_MAX)
    cells //= thin
    stretch = rng.uniform(-STRETCH_PPB, STRETCH_PPB, STRETCH_DRAWS).sum() / 1e9 if stretches else 0.0
    slots = rng.uniform(0, 1e6) + np.arange(cells) * (thin * period * (1 + stretch))
    if walks:
        steps = rng.uniform(-1, 1, cells) if thin == 1 else rng.normal(0, np.sqrt(thin / 3), cells)
        slots += np.cumsum(steps) * (period / STEP_SHARE)
    leaves = slots + rng.uniform(0, period / JITTER_SHARE, cells)
    late = rng.exponential(LATE_US, cells)
    return np.asarray(leaves / (1 + skew_ppm / 1e6) + late, np.int64)


CELLS_MAX: Final = 14_400
"""An hour at four cells a second."""
LATE_US: Final = 200.0
"""Mean lateness of timers."""
