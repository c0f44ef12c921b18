"""P3's own attacker (V.A), in three readings: pick what is next to a Kalman filter's expectation.

The paper's curve is below that of guessing from two fakes on. That is no merit of foiling: where the truth moves much
farther than the fakes are spread, what is next to the expectation is an end of the set, and the truth is at an end with
probability 2^-K. The same filter with its deviations the right way round, or the middle of the set, does better.
"""

from __future__ import annotations

from typing import Final

from veilcast.lab.attack.foil_glance import picked
from veilcast.lab.attack.foil_model import Candidates, Model, Posterior, known
from veilcast.lab.kernels import foil_kalman


def nearest(candidates: Candidates, model: Model) -> Posterior:
    return _picked(candidates, model, foil_kalman.NEAREST)


def bank(candidates: Candidates, model: Model) -> Posterior:
    return _picked(candidates, model, foil_kalman.BANK)


def by_mean(candidates: Candidates, model: Model) -> Posterior:
    return _picked(candidates, model, foil_kalman.BY_MEAN)


def _picked(candidates: Candidates, model: Model, reading: int) -> Posterior:
    """A normal law of moves is all that such a filter knows; without any noise it takes what it sees for true."""
    law = known(model.truth)
    r = model.noise or law.scale * _SMALL
    return picked(
        -foil_kalman.distances(model.numbers(candidates), reading, float(law.scale), float(law.mean), float(r))
    )


_SMALL: Final = 1e-3
