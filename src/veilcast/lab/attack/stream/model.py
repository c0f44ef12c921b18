"""What an attacker on foiled streams knows: laws, and what can be seen elsewhere. Never which candidate is true.

P3's attacker knows the model by which the truth moves and how fakes are made of it; only the foiler's chance is secret.
That is the worst case, and what it knows stands here. Laws are of moves from step to step: normal, or Student's t,
which minute prices fit better. `relative` laws and deviations are of logarithms.

Signs of moves have a law of their own, as sign-flip hides everything else: the logarithm of the odds that a move goes
on in the direction of the last is a constant, and so much more for each unit of the product of both sizes. Prices turn
back more often than they go on; fair coins do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

T = TypeVar("T")
Candidates: TypeAlias = NDArray[np.float64]
"""Of [streams, steps, n]: numbers, or codes of categories written as numbers."""
Posterior: TypeAlias = NDArray[np.float64]
"""Of the same shape: how likely each candidate is to be true; the n of a step sum to 1."""
Numbers: TypeAlias = NDArray[np.float64]


class MoveLaw(NamedTuple):
    """Of moves."""

    scale: float
    mean: float = 0.0
    freedom: float = math.inf
    """Of Student's t; without end, the law is normal and `scale` its deviation."""

    def log_density(self, moves: Numbers) -> Numbers:
        """Of the density."""
        far = ((moves - self.mean) / self.scale) ** 2
        if math.isinf(self.freedom):
            return -0.5 * far - math.log(self.scale * math.sqrt(2 * math.pi))
        gammas = math.lgamma((self.freedom + 1) / 2) - math.lgamma(self.freedom / 2)
        known = gammas - math.log(self.scale * math.sqrt(self.freedom * math.pi))
        return known - (self.freedom + 1) / 2 * np.log1p(far / self.freedom)


class SignLaw(NamedTuple):
    constant: float = 0.0
    slope: float = 0.0


FAIR: Final = SignLaw()


@dataclass(frozen=True, eq=False)
class StreamModel:
    """Whoever knows less leaves it out; an attacker that needs it does then not apply."""

    truth: MoveLaw | None = None
    """How the truth moves."""
    fakes: MoveLaw | None = None
    """How fakes move, where each goes on from itself."""
    noise: float | None = None
    """How far fakes are spread around the truth; None where they are not around it."""
    signs: SignLaw | None = None
    """How the truth's moves turn."""
    fake_signs: SignLaw = FAIR
    pmf: Numbers | None = None
    """How often each code is true."""
    fake_pmf: Numbers | None = None
    """And how often it is a fake."""
    branching: float = 0.0
    """The chance that a slot is, at a step, a copy of another."""
    delay: int = 0
    """After how many steps the truth is public; 0: never."""
    told: Numbers | None = None
    """What then is public, of [streams, steps]; nobody looks at it before."""
    proxy: Numbers | None = None
    """Of [streams, steps]: how restless the day is, as seen elsewhere, from the step before to this one."""
    endings: Numbers | None = None
    """How often the truth, counted in its smallest unit, ends in each of the last digits."""
    asked: NDArray[np.bool_] | None = None
    """Of [streams, steps, n]: which candidates a subscriber was seen to ask the publisher about."""
    relative: bool = False
    fitted: Any = field(default=None)
    """What an attacker that was trained brings from its training."""

    def __post_init__(self) -> None:
        for law in (self.truth, self.fakes):
            if law is not None and not (0 < law.scale < math.inf and math.isfinite(law.mean) and law.freedom >= 1):
                raise ConfigError("a law of moves has a scale above 0, a finite mean, and 1 degree of freedom or more")
        if self.noise is not None and not 0 < self.noise < math.inf:
            raise ConfigError("noise has a deviation above 0")
        if not 0 <= self.branching <= 1:
            raise ConfigError("the chance of a branching is from 0 to 1")
        if self.delay < 0 or (self.delay > 0) != (self.told is not None):
            raise ConfigError("what is told after a delay, and the delay, belong together")

    def numbers(self, candidates: Candidates) -> Candidates:
        """What the laws are about: the candidates, or their logarithms."""
        if not self.relative:
            return candidates
        if not (candidates > 0).all():
            raise ConfigError("relative laws are of values above 0")
        return np.log(candidates)


def require_known(value: T | None) -> T:
    """What an attacker must know to apply."""
    if value is None:
        raise ConfigError("the model lacks what this attacker needs")
    return value


class StreamObservations(NamedTuple):
    candidates: Candidates
    model: StreamModel


KNOWS_NOTHING: Final = StreamModel()
