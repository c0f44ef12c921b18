"""Attackers on events of two numbers, a master and a slave, both standard normal and with a correlation of rho.

`residual` looks at how far each slave is from the line of regression: fakes that lie on it leave the truth beside it.
`density` knows how slaves of truth and of fakes are spread, given the master, and weighs one against the other.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.foil_model import Law, Numbers, Posterior

Pairs: TypeAlias = NDArray[np.float64]
"""Of [streams, steps, n, 2]."""


def residual(candidates: Pairs, rho: float) -> Posterior:
    off = np.abs(candidates[..., 1] - rho * candidates[..., 0])
    chosen = off >= off.max(axis=2, keepdims=True)
    return np.asarray(chosen / chosen.sum(axis=2, keepdims=True), np.float64)


def density(candidates: Pairs, rho: float, slope: float, deviation: float) -> Posterior:
    """`slope` and `deviation` are those of the fakes' slaves."""
    master, slave = candidates[..., 0], candidates[..., 1]
    true = Law(math.sqrt(1 - rho**2)).logs(slave - rho * master)
    fake = Law(max(deviation, _LINE)).logs(slave - slope * master)
    odds: Numbers = true - fake
    weights = np.exp(odds - odds.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True), np.float64)


_LINE: Final = 1e-9
"""How far from a line is still on it."""
