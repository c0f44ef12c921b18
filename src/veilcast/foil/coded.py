"""Numbers as categories: a generator for codes, used on an attribute with few enough different values.

Pure. The table of values is declared, or counted from a history; a value that is not in it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Chance, Numbers, Places
from veilcast.foil.generator import Generator, State
from veilcast.foil.pmf import Pmf


@dataclass(frozen=True, eq=False)
class Coded(Generic[State]):
    table: Numbers
    """Rising; code i is its i-th value."""
    generator: Generator[State, np.int64]

    def __post_init__(self) -> None:
        if len(self.table) < 2 or not (np.diff(self.table) > 0).all() or not np.isfinite(self.table).all():
            raise ConfigError("the values of a table rise, and are finite")

    @property
    def n(self) -> int:
        return self.generator.n

    def begin(self, streams: int, rng: Chance) -> State:
        return self.generator.begin(streams, rng)

    def next(self, state: State, values: Numbers, rng: Chance) -> tuple[State, Numbers, Places]:
        codes = np.minimum(np.searchsorted(self.table, values), len(self.table) - 1)
        if not (self.table[codes] == values).all():
            raise LocalError("a value is not in the declared table")
        state, candidates, position = self.generator.next(state, codes, rng)
        return state, self.table[candidates], position


def counted(history: Numbers) -> tuple[Numbers, Pmf]:
    """The table of a history, and how often each of its values was true."""
    if not np.isfinite(history).all():
        raise LocalError("a history is of finite numbers")
    table, counts = np.unique(history, return_counts=True)
    if len(table) < 2:
        raise LocalError("a history that never changes has nothing that could be true instead")
    return table, Pmf(counts)
