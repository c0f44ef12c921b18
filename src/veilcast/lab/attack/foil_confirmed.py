"""Who sees the questions of P3's step 4 needs no mathematics: nobody asks about what it did not want.

A subscriber asks the publisher whether a notification is authentic, and asks only for those that match its authentic
subscription. So whoever sees the question knows which of the subscriptions is authentic, and that the event is one of
those asked about at that step; fakes that lie in the same range are asked about, too, and are all that is left to hide
among. Positions from a shared key need no question.
"""

from __future__ import annotations

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.attack.foil_glance import shares
from veilcast.lab.attack.foil_model import Candidates, Model, Posterior, known


def confirmation(candidates: Candidates, model: Model) -> Posterior:
    asked = known(model.asked)
    if asked.shape != candidates.shape:
        raise ConfigError("questions are about candidates: of the same shape")
    return shares(asked.astype(np.float64))
