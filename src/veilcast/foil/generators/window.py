"""Window: fakes around a centre that is as far from the truth as from the fakes.

Pure. The centre is the truth plus noise, the fakes are the centre plus noise of the same law. As noise is symmetric,
the truth is one more draw around the centre, and the candidates of one step are exchangeable: picking the one nearest
to their mean is a guess. Over time the truth is still the only candidate that moves by small steps, so this repairs a
single step and no more. Near the ends of the domain, fakes are reflected and the truth is not, which leaks a little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import check_fakes, check_streams, insert_truth
from veilcast.foil.generators.numeric_domain import UNBOUNDED, NumericDomain
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource


@dataclass(frozen=True)
class WindowFakes:
    k: int
    deviation: float
    """Absolute. A deviation that grew with the value would differ between the centre and the truth."""
    domain: NumericDomain = UNBOUNDED

    def __post_init__(self) -> None:
        check_fakes(self.k)
        if not 0 < self.deviation < math.inf:
            raise ConfigError("a window has a deviation above 0")

    @property
    def n(self) -> int:
        return self.k + 1

    def begin(self, streams: int, rng: RandomSource) -> int:
        return streams

    def next(self, state: int, values: FloatArray, rng: RandomSource) -> tuple[int, FloatArray, IntArray]:
        check_streams(values, state)
        centre = self.domain.check(values) + self.deviation * rng.standard_normal((len(values),))
        fakes = centre[:, None] + self.deviation * rng.standard_normal((len(values), self.n))
        return state, *insert_truth(self.domain.fit(fakes), values, rng)
