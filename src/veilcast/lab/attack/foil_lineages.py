"""Attackers that follow each slot over the whole stream: does it move as the truth does, or as fakes do?

They are for candidates that go on from themselves, and are granted to see which is which from step to step. Moves that
are not of the truth's law give a fake away, a little at each step, and after some hundred for certain.

`likelihood_ratio` weighs the moves of a slot by the law of the truth against that of the fakes. `turns` looks at signs
alone, given the sizes: whether moves go on or turn back. Sign-flip copies the sizes, and this is what is left of it.
`restless` knows from elsewhere (the volume traded, an index) how restless each step was, up to a factor, and prefers
the slot whose moves were large at those times: fakes of any law of their own are calm when the day is not.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import log_expit

from veilcast.errors import ConfigError
from veilcast.lab.attack.foil_model import Candidates, Model, Numbers, Posterior, Signs, known
from veilcast.lab.attack.foil_repeats import weighed


def likelihood_ratio(candidates: Candidates, model: Model) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    return whole(candidates, known(model.truth).logs(moves) - known(model.fakes).logs(moves))


def turns(candidates: Candidates, model: Model) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    products = moves[:, 1:] * moves[:, :-1]
    return whole(candidates, _signs(products, known(model.signs)) - _signs(products, model.fake_signs))


def restless(candidates: Candidates, model: Model) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    size = known(model.proxy)[:, 1:]
    if size.shape != moves.shape[:2] or not (size > 0).all():
        raise ConfigError("how restless a step was is a number above 0 for each")
    # Normal moves with deviations in these proportions, and for each slot the factor that suits it best.
    spread = ((moves / size[:, :, None]) ** 2).mean(axis=1)
    found = -moves.shape[1] / 2 * np.log(np.maximum(spread, _LEAST))
    return np.repeat(weighed(found[:, None, :]), candidates.shape[1], axis=1)


def whole(candidates: Candidates, logs: Numbers) -> Posterior:
    """What all moves of a slot say together, for each step alike."""
    return np.repeat(weighed(logs.sum(axis=1, keepdims=True)), candidates.shape[1], axis=1)


def _signs(products: Numbers, law: Signs) -> Numbers:
    """The logarithm of how likely each turn was, or that there was none; rests say nothing."""
    odds = law.constant + law.slope * np.abs(products)
    return np.where(products == 0, 0.0, log_expit(np.sign(products) * odds))


_LEAST: Final = 1e-300
