"""Whether a move goes on or turns back, given how far it and the last one go: the law of signs that sign-flip needs.

Pure. Prices lean back a little: trades at the bid and at the ask take turns, and a large move is often in part undone.
Fakes whose signs are fair coins do not, and over a day the sum of products of neighbouring moves gives the truth away.
For Gaussian moves that depend on the last by an autoregression, given both sizes, the logarithm of the odds that the
two have one sign is proportional to the product of the sizes. Here it is that and a constant, both fitted by the
largest likelihood. The fit has a property that is wanted: drawn anew by this law, as many moves turn back as did, and
the sum of products is on average what it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Numbers


@dataclass(frozen=True)
class Lean:
    constant: float = 0.0
    slope: float = 0.0
    """For each unit of one size times the other."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.constant) and math.isfinite(self.slope)):
            raise ConfigError("a lean has finite numbers")

    @classmethod
    def fitted(cls, moves: Numbers) -> Self:
        """To the moves of one history; those that rest say nothing."""
        before, now = moves[:-1], moves[1:]
        told = (before != 0) & (now != 0)
        if np.count_nonzero(told) < PAIRS_MIN:
            raise LocalError(f"a lean is fitted to {PAIRS_MIN} pairs of moves or more")
        same = (before * now)[told] > 0
        products = np.abs(before * now)[told]
        unit = float(products.mean())
        features = np.stack([np.ones(len(products)), products / unit], axis=1)
        weights = np.zeros(2)
        for _ in range(_ROUNDS):
            p = _chance(features @ weights)
            curvature = (features * (p * (1 - p))[:, None]).T @ features + _RIDGE * np.eye(2)
            weights += np.linalg.solve(curvature, features.T @ (same - p) - _RIDGE * weights)
        return cls(float(weights[0]), float(weights[1]) / unit)

    def same_sign(self, last: Numbers, sizes: Numbers) -> Numbers:
        """The probability that a move of that size has the sign of the last."""
        return _chance(self.constant + self.slope * np.abs(last) * sizes)


def _chance(odds: Numbers) -> Numbers:
    """From the logarithm of odds."""
    return 1 / (1 + np.exp(-np.clip(odds, -_SURE, _SURE)))


FAIR: Final = Lean()

PAIRS_MIN: Final = 30

_ROUNDS: Final = 25
_RIDGE: Final = 1e-3
"""Keeps the fit finite where all moves turn back, or all go on."""
_SURE: Final = 30.0
