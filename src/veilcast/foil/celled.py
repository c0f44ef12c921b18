"""Cells: what a broker sees of a number is the cell that it is routed by, and a generator goes on beneath.

Pure. Digits give the truth away: people round, and fakes that copy moves do not. A broker needs none of them, for it
filters by cells, and the number itself travels sealed. So numbers are foiled as they are, lineages go on from where
they are within a cell, and only then is each candidate put into its cell. To round first and to foil what is left would
be worse: a price that goes to and fro over an edge makes moves that turn back each time, and copies do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.chance import Chance, Numbers, Places
from veilcast.foil.generator import Generator, State


@dataclass(frozen=True, eq=False)
class Celled(Generic[State]):
    generator: Generator[State, np.float64]
    width: float
    low: float = 0.0
    """Where the first cell begins."""

    def __post_init__(self) -> None:
        if not (0 < self.width < math.inf and math.isfinite(self.low)):
            raise ConfigError("cells have a width above 0, and begin somewhere")

    @property
    def n(self) -> int:
        return self.generator.n

    def begin(self, streams: int, rng: Chance) -> State:
        return self.generator.begin(streams, rng)

    def next(self, state: State, values: Numbers, rng: Chance) -> tuple[State, Numbers, Places]:
        """The candidates are the numbers of their cells, counted from 0."""
        state, candidates, position = self.generator.next(state, values, rng)
        return state, np.floor((candidates - self.low) / self.width), position
