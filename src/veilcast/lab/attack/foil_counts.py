"""Who only counts (P3, Scenario II): the attacker that knows no law, and all of the traffic.

Fakes that are too few to level all values leave the most frequent ones standing out of the water. A value that is in
the traffic more often than others is there because it is often true: of each set the most frequent is taken.
"""

from __future__ import annotations

import numpy as np

from veilcast.lab.attack.foil_glance import picked
from veilcast.lab.attack.foil_model import Candidates, Model, Posterior


def counts(candidates: Candidates, model: Model) -> Posterior:
    _, codes, often = np.unique(candidates, return_inverse=True, return_counts=True)
    return picked(often[codes].reshape(candidates.shape).astype(np.float64))
