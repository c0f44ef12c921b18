"""Round numbers: people quote prices at full, half and tenth parts, and fakes that only copy moves do not.

Of a day's closing minutes twice as many end in a full ten cents as would by chance. A fake that goes as far as the
truth, up where that goes down, ends anywhere. How often the truth ends in each of the last digits is public; a slot's
likelihood is the product of these shares over its steps, against that of endings that are all alike. Few steps suffice,
unless a broker sees no digits: who routes by cells that are wider than what people round to shows no ending.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.attack.foil_lineages import whole
from veilcast.lab.attack.foil_model import Candidates, Model, Numbers, Posterior, known


def endings(candidates: Candidates, model: Model) -> Posterior:
    shares = known(model.endings)
    units = np.rint(candidates).astype(np.int64)
    if not (units == candidates).all():
        raise ConfigError("endings are of whole numbers: candidates are to be counted in their smallest unit")
    return whole(candidates, np.log(shares * len(shares))[units % len(shares)])


def counted(values: Numbers, many: int = 100) -> Numbers:
    """How often whole numbers of a history end in each of so many endings; none is ruled out for not having come."""
    ends = np.rint(values).astype(np.int64).ravel() % many
    found = np.bincount(ends, minlength=many) + _AT_LEAST
    return np.asarray(found / found.sum(), np.float64)


_AT_LEAST: Final = 0.5
