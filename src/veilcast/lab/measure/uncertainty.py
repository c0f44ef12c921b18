"""How uncertain an attacker is who holds a probability for each candidate, exactly one of whom is sought.

Entropy (Serjantov and Danezis 2002) is how many questions of yes or no are left on the average, two to its power the
size of a set that would be as hard to search; divided by what it would be if nothing were known it is the degree of
anonymity (Diaz and others 2002). Min-entropy looks at the best guess alone, which is what a rational attacker makes.
All say something about the network only if the probabilities mean what they say.
"""

from __future__ import annotations

from math import log2

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError


def of_posterior(posterior: NDArray[np.float64]) -> dict[str, float]:
    """Bits of entropy and min-entropy, the effective size, how many are possible, and the degree."""
    total = float(posterior.sum())
    if total <= 0 or (posterior < 0).any():
        raise ConfigError("probabilities are not negative, and not all of them are 0")
    likely = posterior[posterior > 0] / total
    # The sum of a certainty is -0; nobody should read that.
    entropy = max(0.0, -float(np.sum(likely * np.log2(likely))))
    return {
        "entropy": entropy,
        "min_entropy": max(0.0, -log2(float(likely.max()))),
        "effective_size": 2.0**entropy,
        "possible": float(len(likely)),
        "degree": entropy / log2(len(posterior)) if len(posterior) > 1 else 0.0,
    }
