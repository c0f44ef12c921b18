"""Probabilities of categories: checked once, cumulated once, drawn from by one look-up for each number.

Pure. Categories are codes 0 to V - 1. The cumulated probabilities lay them on the interval from 0 to 1, each as long as
it is likely; a uniform number falls on a code with that code's probability.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Numbers, Places


class Pmf:
    def __init__(self, weights: npt.ArrayLike) -> None:
        p = np.array(weights, dtype=np.float64)
        if p.ndim != 1 or len(p) < 2 or not np.isfinite(p).all() or (p < 0).any() or np.count_nonzero(p) < 2:
            raise ConfigError("probabilities are of two values or more, finite and not negative, two of them above 0")
        self.p: Numbers = p / p.sum()
        self.below: Numbers = np.concatenate([[0.0], np.cumsum(self.p)[:-1]])
        """Of each code, where on the interval it begins."""
        self.upto: Numbers = np.append(self.below[1:], 1.0)

    def __len__(self) -> int:
        return len(self.p)

    def at(self, where: Numbers) -> Places:
        """The codes that lie there."""
        return np.minimum(np.searchsorted(self.upto, where, side="right"), self._last)

    def checked(self, codes: Places) -> Places:
        """The codes, if all can be published."""
        if not np.issubdtype(codes.dtype, np.integer):
            raise LocalError("categories are whole numbers, their codes")
        if not ((codes >= 0) & (codes < len(self.p))).all():
            raise LocalError(f"a code lies outside of the declared 0 to {len(self.p) - 1}")
        if not self.p[codes].all():
            raise LocalError("a code has probability 0: as it was declared, it cannot be true")
        return codes

    @property
    def _last(self) -> int:
        """Where rounding leaves a hair's breadth at the end, it belongs to the last code that can be."""
        return int(np.flatnonzero(self.p)[-1])
