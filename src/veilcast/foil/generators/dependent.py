"""Events of several attributes (P3, end of IV.B): each foiled alone, or some given another.

Pure. Candidates have one more axis, [streams, n, attributes], and in each event the truth of all attributes is in one
slot. Independent attributes have a generator each. Otherwise one attribute is the **primary**, and the **dependent**
attributes of a fake follow from it. The paper uses regression, which puts every fake on the line and only the truth
beside it, so that an adversary finds the truth each time. The alternative draws them as they are spread around the
line, given the primary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self

import numpy as np
import numpy.typing as npt

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import Generator, Kind, State
from veilcast.foil.generators.categories import Pmf
from veilcast.foil.generators.numeric_domain import UNBOUNDED, NumericDomain
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource


class ConditionalLaw(Protocol[Kind]):
    """The distribution of a dependent attribute, given the primary."""

    def check(self, primary: npt.NDArray[Kind], values: npt.NDArray[Kind]) -> None:
        """Refuse values that, as declared, cannot be true beside that primary."""

    def draw(self, primary: npt.NDArray[Kind], rng: RandomSource) -> npt.NDArray[Kind]: ...


@dataclass(frozen=True, eq=False)
class DependentEvents(Generic[State, Kind]):
    primary: Generator[State, Kind]
    """Generator of the first attribute."""
    dependents: Sequence[ConditionalLaw[Kind]]
    """Laws of the other attributes, in their order."""

    @property
    def n(self) -> int:
        return self.primary.n

    def begin(self, streams: int, rng: RandomSource) -> State:
        return self.primary.begin(streams, rng)

    def next(
        self, state: State, values: npt.NDArray[Kind], rng: RandomSource
    ) -> tuple[State, npt.NDArray[Kind], IntArray]:
        _check_attributes(values, 1 + len(self.dependents))
        for attribute, dependent in enumerate(self.dependents, start=1):
            dependent.check(values[:, 0], values[:, attribute])
        state, primaries, position = self.primary.next(state, values[:, 0], rng)
        candidates = np.stack([primaries, *(dependent.draw(primaries, rng) for dependent in self.dependents)], axis=2)
        candidates[np.arange(len(values)), position] = values
        return state, candidates, position


@dataclass(frozen=True)
class LinearLaw:
    """A number on a line, or spread around it by a normal law."""

    slope: float
    intercept: float
    deviation: float
    """0 is the paper's."""
    domain: NumericDomain = UNBOUNDED

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.intercept) and 0 <= self.deviation < math.inf):
            raise ConfigError("a line has finite numbers, and a deviation that is not negative")

    @classmethod
    def fit(cls, primary: FloatArray, dependent: FloatArray, domain: NumericDomain = UNBOUNDED) -> Self:
        """Fit by least squares."""
        if primary.shape != dependent.shape or len(primary) < 3 or not np.isfinite(primary + dependent).all():
            raise LocalError("a line is fitted to three pairs of finite numbers or more")
        if not np.ptp(primary) > 0:
            raise LocalError("a primary attribute that never changes says nothing about the others")
        slope = float(np.cov(primary, dependent)[0, 1] / primary.var(ddof=1))
        intercept = float(dependent.mean() - slope * primary.mean())
        residuals = dependent - slope * primary - intercept
        return cls(slope, intercept, float(np.sqrt((residuals**2).sum() / (len(primary) - 2))), domain)

    def check(self, primary: FloatArray, values: FloatArray) -> None:
        self.domain.check(values)

    def draw(self, primary: FloatArray, rng: RandomSource) -> FloatArray:
        line = self.slope * primary + self.intercept
        return self.domain.fit(line + self.deviation * rng.standard_normal(primary.shape) if self.deviation else line)


class ConditionalTable:
    """A category, by a table of its probabilities for each category of the primary."""

    def __init__(self, table: npt.ArrayLike) -> None:
        self._rows = [Pmf(row) for row in np.asarray(table, dtype=np.float64)]

    def check(self, primary: IntArray, values: IntArray) -> None:
        for chosen, row in self._rows_for(primary):
            row.check_codes(values[chosen])

    def draw(self, primary: IntArray, rng: RandomSource) -> IntArray:
        where = rng.random(primary.shape)
        result = np.empty(primary.shape, dtype=np.int64)
        for chosen, row in self._rows_for(primary):
            result[chosen] = row.codes_at(where[chosen])
        return result

    def _rows_for(self, primary: IntArray) -> Iterator[tuple[npt.NDArray[np.bool_], Pmf]]:
        """Where each row of the table applies."""
        if not ((primary >= 0) & (primary < len(self._rows))).all():
            raise LocalError(f"the table has rows for primary values 0 to {len(self._rows) - 1}")
        for code, row in enumerate(self._rows):
            yield primary == code, row


def _check_attributes(values: npt.NDArray[Any], attributes: int) -> None:
    if values.ndim != 2 or values.shape[1] != attributes:
        raise LocalError(f"an event has {attributes} attributes")
