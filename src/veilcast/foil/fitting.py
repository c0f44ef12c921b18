"""Student's t fitted to a history of moves, by the largest likelihood.

Pure. For given degrees of freedom, location and scale are found by weighing each move down the farther out it is and
averaging, again and again (an EM algorithm); the degrees of freedom are those of a fixed grid under which the moves are
most likely. Where very many moves are the same (a price that mostly rests), the likelihood grows without end as the
scale shrinks on them: it stays above a thousandth of the plain deviation.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from veilcast.foil.chance import Numbers
from veilcast.foil.moves import StudentT


def fitted_t(moves: Numbers, *, relative: bool) -> StudentT:
    """`moves` are those of `moves_of`."""
    fits = [(*_located(moves, freedom), freedom) for freedom in FREEDOMS]
    mean, scale, freedom = max(fits, key=lambda fit: _likelihood(moves, *fit))
    return StudentT(mean, scale, freedom, relative)


def _located(moves: Numbers, freedom: float) -> tuple[float, float]:
    plain = float(moves.std())
    mean, scale = float(np.median(moves)), plain
    for _ in range(_ROUNDS):
        weights = (freedom + 1) / (freedom + ((moves - mean) / scale) ** 2)
        mean = float(np.average(moves, weights=weights))
        scale = max(float(np.sqrt(np.mean(weights * (moves - mean) ** 2))), plain * _LEAST_SCALE)
    return mean, scale


def _likelihood(moves: Numbers, mean: float, scale: float, freedom: float) -> float:
    """Its logarithm, for each move, without what is the same for all."""
    far = np.log1p(((moves - mean) / scale) ** 2 / freedom).mean()
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom) / 2
    return gammas - math.log(scale) - (freedom + 1) / 2 * float(far)


FREEDOMS: Final = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 50.0)
"""Beyond the last, moves are as good as Gaussian."""

_ROUNDS: Final = 40
_LEAST_SCALE: Final = 1e-3
