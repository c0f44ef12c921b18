"""Series of the kinds that people publish, each from a seed: what foiling is checked on.

A seed chooses the parameters of a series, too, so that a check on several seeds is a check on several owners. Four
kinds: prices whose restlessness clusters, with jumps; a sensor with a daily curve; a meter that only grows; and a value
that rests and jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class ValueSeries(NamedTuple):
    values: Floats
    typical: float
    """The size of a typical change: of one step, or of the whole daily residual."""

    def bounds(self) -> tuple[float, float]:
        """A domain that a topic could declare: wide enough for the fakes."""
        low, high = float(self.values.min()), float(self.values.max())
        room = (high - low) or 1.0
        return low - 2 * room, high + 2 * room


def prices(seed: int, steps: int) -> ValueSeries:
    """GARCH(1,1) with Student's t, and rare jumps: no drift, no season, heavy tails."""
    rng = np.random.default_rng([1, seed])
    alpha, beta, base = rng.uniform(0.05, 0.12), rng.uniform(0.8, 0.87), rng.uniform(0.15, 0.6)
    freedom, every = rng.uniform(4, 8), rng.integers(150, 400)
    moves, variance = np.empty(steps), base**2
    for step in range(steps):
        moves[step] = np.sqrt(variance * (freedom - 2) / freedom) * rng.standard_t(freedom)
        variance = base**2 * (1 - alpha - beta) + alpha * moves[step] ** 2 + beta * variance
    moves += (rng.random(steps) < 1 / every) * rng.standard_normal(steps) * 8 * base
    return ValueSeries(500 + np.cumsum(moves), base)


def sensor(seed: int, steps: int) -> ValueSeries:
    """A daily curve of one or two waves, and a residual that returns to it."""
    rng = np.random.default_rng([2, seed])
    period = int(rng.choice([24, 48, 96, 144]))
    phase = 2 * np.pi * (np.arange(steps) / period + rng.random())
    curve = rng.uniform(3, 8) * np.sin(phase) + rng.uniform(0, 2) * np.sin(2 * phase + rng.random() * 6)
    keep, spread = rng.uniform(0.6, 0.93), rng.uniform(0.4, 1.0)
    residual = spread * np.sqrt(1 - keep**2) * rng.standard_normal(steps)
    residual[0] = spread * rng.standard_normal()
    for step in range(1, steps):
        residual[step] += keep * residual[step - 1]
    return ValueSeries(20 + curve + residual, spread)


def meter(seed: int, steps: int) -> ValueSeries:
    """Increments above 0, of a gamma law; for even seeds more of them by day than by night, and somewhat lasting."""
    rng = np.random.default_rng([3, seed])
    shape, mean = rng.uniform(0.8, 4), rng.uniform(0.5, 3)
    grows = rng.gamma(shape, mean / shape, steps)
    if seed % 2 == 0:
        period = int(rng.choice([24, 48, 96]))
        grows *= 1 + rng.uniform(0.3, 0.7) * np.sin(2 * np.pi * (np.arange(steps) / period + rng.random()))
        lasting = np.empty(steps)
        lasting[0] = rng.standard_normal()
        for step in range(1, steps):
            lasting[step] = 0.7 * lasting[step - 1] + np.sqrt(0.51) * rng.standard_normal()
        grows *= np.exp(0.4 * lasting)
    return ValueSeries(1000 + np.cumsum(grows), float(grows.std()))


def rests(seed: int, steps: int) -> ValueSeries:
    """Rests for some steps, then jumps: by a step of its own (even seeds), or to a level of its own (odd seeds)."""
    rng = np.random.default_rng([4, seed])
    every, size = rng.uniform(5, 15), rng.uniform(1, 4)
    jumps = rng.random(steps) < 1 / every
    sizes = size * rng.standard_normal(steps)
    if seed % 2 == 0:
        return ValueSeries(100 + np.cumsum(jumps * sizes), size)
    values, now = np.empty(steps), 0.0
    for step in range(steps):
        now = sizes[step] if jumps[step] or step == 0 else now
        values[step] = 100 + now
    return ValueSeries(values, size)


KINDS: Final[dict[str, Callable[[int, int], ValueSeries]]] = {
    "prices": prices,
    "sensor": sensor,
    "meter": meter,
    "rests": rests,
}
