"""Public knowledge of an attacker on foiled streams: laws, and observations from elsewhere. It never says which
candidate is true.

P3's attacker knows the model by which the truth moves and how fakes are made; only the foiler's randomness is secret.
That is the worst case. Laws are about moves from step to step: normal, or Student's t, which fits minute prices better.
`relative` laws and deviations are about logarithms.

Signs of moves have a law of their own, because sign-flip hides everything else. The log-odds that a move continues in
the direction of the last one are a constant, plus a slope for each unit of the product of both sizes. Prices turn back
more often than they continue; fair coins do not.
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
"""Array [streams, steps, n]: numbers, or codes of categories written as numbers."""
Posterior: TypeAlias = NDArray[np.float64]
"""Array of the same shape: the probability of each candidate to be true; the n of a step sum to 1."""
Numbers: TypeAlias = NDArray[np.float64]


class MoveLaw(NamedTuple):
    """Distribution of moves from one step to the next."""

    scale: float
    mean: float = 0.0
    freedom: float = math.inf
    """Degrees of freedom of Student's t; infinite for a normal law with the deviation `scale`."""

    def log_density(self, moves: Numbers) -> Numbers:
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


class LineLaw(NamedTuple):
    """Law of a standard normal number given another one: normal around a line through 0."""

    slope: float
    deviation: float


class SeenBranchings(NamedTuple):
    """Branchings of lineages, where they are all that is seen; in their order."""

    event: NDArray[np.int64]
    """Number of the moment of a branching; a stream has one at most at a time."""
    stream: NDArray[np.int64]
    parent: NDArray[np.int64]
    child: NDArray[np.int64]
    """The slot whose own lineage ends."""


@dataclass(frozen=True, eq=False)
class StreamModel:
    """An attacker that knows less leaves fields out; an attack that needs them does not apply then."""

    truth: MoveLaw | None = None
    """Law of the truth's moves."""
    fakes: MoveLaw | None = None
    """Law of a fake's moves, if each fake continues from itself."""
    noise: float | None = None
    """Deviation of fakes around the truth; None if they are not around it."""
    signs: SignLaw | None = None
    """Law of the truth's signs."""
    fake_signs: SignLaw = FAIR
    pmf: Numbers | None = None
    """Frequency of each code as the truth."""
    fake_pmf: Numbers | None = None
    """Frequency of each code as a fake."""
    branching: float = 0.0
    """Probability that a slot is, at a step, a copy of another."""
    delay: int = 0
    """Number of steps after which the truth is public; 0 for never."""
    told: Numbers | None = None
    """The public truth, [streams, steps]; attackers do not look at it before its delay."""
    proxy: Numbers | None = None
    """Array [streams, steps]: volatility seen elsewhere, from the step before to this one."""
    endings: Numbers | None = None
    """Frequency of each of the last digits of the truth, counted in its smallest unit."""
    asked: NDArray[np.bool_] | None = None
    """Array [streams, steps, n]: candidates that a subscriber was seen to ask the publisher about."""
    relative: bool = False
    codes: int | None = None
    """Number of categories, if values are codes."""
    dependent: Candidates | None = None
    """The second number of each candidate, if events have two; both are standard normal."""
    correlation: float | None = None
    """Correlation of the two numbers of a true event."""
    fake_line: LineLaw | None = None
    """Law of the second number of a fake, given the first."""
    branchings: SeenBranchings | None = None
    child_odds: float = 2.0
    """How many times as likely a branching is with the truth as the parent as without the truth."""
    told_slot: NDArray[np.int64] | None = None
    """By stream, the slot of the truth at the event number `told_event`; -1 if it never becomes public."""
    told_event: int = 0
    forecast: Numbers | None = None
    """Array [streams, steps]: what is publicly expected of the value."""
    forecast_keep: float = 1.0
    """Share of the distance from the forecast that lasts to the next step."""
    forecast_law: MoveLaw | None = None
    """Law of what is new in the distance from the forecast at each step."""
    fitted: Any = field(default=None)
    """Result of a trained attacker's training."""

    def __post_init__(self) -> None:
        for law in (self.truth, self.fakes, self.forecast_law):
            if law is not None and not (0 < law.scale < math.inf and math.isfinite(law.mean) and law.freedom >= 1):
                raise ConfigError("a law of moves has a scale above 0, a finite mean, and 1 degree of freedom or more")
        if self.noise is not None and not 0 < self.noise < math.inf:
            raise ConfigError("noise has a deviation above 0")
        if not 0 <= self.branching <= 1:
            raise ConfigError("the chance of a branching is from 0 to 1")
        if self.delay < 0 or (self.delay > 0) != (self.told is not None):
            raise ConfigError("what is told after a delay, and the delay, belong together")

    def numbers(self, candidates: Candidates) -> Candidates:
        """The values that the laws are about: the candidates, or their logarithms."""
        if not self.relative:
            return candidates
        if not (candidates > 0).all():
            raise ConfigError("relative laws are of values above 0")
        return np.log(candidates)


def require_known(value: T | None) -> T:
    """Return the value; raises `ConfigError` if the attacker does not know it."""
    if value is None:
        raise ConfigError("the model lacks what this attacker needs")
    return value


class StreamObservations(NamedTuple):
    """Candidates of foiled streams, and the public knowledge about them.

    Candidates are in slots. Where a generator has lineages, following each slot from step to step is granted, as the
    worst case; hand in the candidates as `placed` orders them for the view of a broker. Attackers are deterministic.
    Candidates that an attacker cannot tell apart get equal probabilities, and a guess by them splits a tie evenly.
    """

    candidates: Candidates
    model: StreamModel


KNOWS_NOTHING: Final = StreamModel()
