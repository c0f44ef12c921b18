"""Clock skew: which addresses are one machine?

A clock runs fast or slow by some parts in a million, and keeps doing so for years. Where cells leave on a grid of the
sender's clock, the spacing of the grid shows the error, through any delay that is bounded and drawn independently for
each cell (Kohno, Broido and Claffy, "Remote physical device fingerprinting", 2005). An observer compares the errors of
two addresses. It recognises a machine that has changed its address, and two members on one machine.

1. The cells of each link are numbered by their slots: a gap is as many slots as it has periods, rounded.
2. The slope of the times over the numbers, in periods of the link's class, is the error of the clock. Three estimators:
   `envelope` is the line below all points that is nearest to them, as Kohno et al. find it by linear programming; it is
   the best where delays are never negative and often near 0, and the line is an edge of the lower convex hull.
   `least-squares` is the best where delays are normal. `ends` compares the first cells with the last; it is the best
   where the phase does a random walk.
3. The error of a node is the mean over the links that it sends on (`clock_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Numbers = NDArray[np.float64]


class LinkCells(NamedTuple):
    """The cells of one link, in order."""

    t_us: Times


def estimate_link(t_us: Times, estimator: str) -> float:
    """How much slower than its class a link sends, in ppm; times are in order. A fast clock is below 0."""
    return ESTIMATORS[estimator](*number_slots(t_us)) * _MILLION


def score_link(cells: LinkCells, estimator: str) -> Numbers:
    """The same as a score: one number."""
    return np.array([estimate_link(cells.t_us, estimator)])


def number_slots(t_us: Times) -> tuple[Numbers, Numbers]:
    """When each cell of a link is due by its class, counted from the first cell; and how much later it came."""
    gaps = np.diff(t_us)
    periods = np.array(PERIODS_US)
    period = float(periods[np.argmin(np.abs(np.log(periods / np.median(gaps))))])
    slots = np.append(0, np.cumsum(np.maximum(1, np.rint(gaps / period))))
    due_us = slots * period
    return due_us, (t_us - t_us[0]) - due_us


def identify(before: Numbers, after: Numbers) -> NDArray[np.intp]:
    """For each machine seen after, the machine seen before that is most like it."""
    return np.asarray(np.argmin(np.abs(after[:, None] - before[None, :]), axis=1))


def _envelope(x: Numbers, y: Numbers) -> float:
    """The slope of the lower convex hull's edge over the mean of x; of each stretch of points only the lowest
    counts."""
    block = max(1, len(x) // BLOCKS)
    whole = len(x) // block * block
    lowest = np.arange(0, whole, block) + np.argmin(y[:whole].reshape(-1, block), axis=1)
    if whole < len(x):
        lowest = np.append(lowest, whole + int(np.argmin(y[whole:])))
    hull: list[tuple[float, float]] = []
    for at, height in zip(x[lowest].tolist(), y[lowest].tolist(), strict=True):
        while len(hull) > 1 and _turns_down(*hull[-2], *hull[-1], at, height):
            hull.pop()
        hull.append((at, height))
    middle = float(x.mean())
    right = next((place for place, (at, _) in enumerate(hull) if at >= middle), len(hull) - 1)
    (left_at, left), (right_at, height) = hull[max(0, right - 1)], hull[max(right, min(1, len(hull) - 1))]
    return 0.0 if left_at == right_at else (height - left) / (right_at - left_at)


def _turns_down(x0: float, y0: float, x1: float, y1: float, x2: float, y2: float) -> bool:
    return (y1 - y0) * (x2 - x0) >= (y2 - y0) * (x1 - x0)


def _least_squares(x: Numbers, y: Numbers) -> float:
    centred = x - x.mean()
    return float((centred * y).sum() / (centred * centred).sum())


def _ends(x: Numbers, y: Numbers) -> float:
    few = max(1, min(ENDS, len(x) // 4))
    return float((y[-few:].mean() - y[:few].mean()) / (x[-few:].mean() - x[:few].mean()))


ESTIMATORS: Final[Mapping[str, Callable[[Numbers, Numbers], float]]] = {
    "envelope": _envelope,
    "least-squares": _least_squares,
    "ends": _ends,
}
PERIODS_US: Final = (1_000_000.0, 250_000.0, 62_500.0)
"""Periods of the classes of links, which are public, in microseconds."""
CELLS_MIN: Final = 32
"""Smallest number of cells of an estimated link."""
BLOCKS: Final = 512
"""Number of stretches that a link is cut into for the hull."""
ENDS: Final = 16
"""Number of cells at either end."""
_MILLION: Final = 1e6
