"""Overlays of P4: trees of brokers, and between any two of them the hops and where their paths meet.

"A fully connected overlay without any redundant path" is a tree. Any tree has two ends for each edge, so a fan-out
that can be 2 or 5 is that of inner brokers: children. Three families are drawn: a tree grown breadth-first whose
brokers have one child and more, by a geometric law or by a uniform one of the same mean, until there are enough
brokers; and the complete one. Brokers are numbered in the order of growth, the root 0, so a parent's number is below
its children's, and a broker's rank by Zipf's law is its number.

Tables between all pairs follow from those of parents, row by row: 400 brokers are 160,000 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, log1p
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_unit, stream

Family: TypeAlias = Literal["geometric", "uniform", "complete"]
Brokers: TypeAlias = NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class BrokerTree:
    parents: Brokers
    """By broker; the root is its own."""

    def __post_init__(self) -> None:
        numbers = np.arange(self.parents.size)
        if self.parents.size < 1 or self.parents[0] != 0 or (self.parents[1:] >= numbers[1:]).any():
            raise ConfigError("brokers are numbered from their root, each after its parent")
        if (self.parents < 0).any():
            raise ConfigError("a broker's parent is a broker")

    @property
    def brokers(self) -> int:
        return self.parents.size

    @cached_property
    def depth(self) -> Brokers:
        return _depths(self.parents)

    @cached_property
    def meeting_brokers(self) -> Brokers:
        """Pairs: the broker of a path that is nearest to the root."""
        return _meets(self.parents)

    @cached_property
    def edges(self) -> Brokers:
        """Pairs: how many edges are between them."""
        depth = self.depth
        found: Brokers = depth[:, None] + depth[None, :] - 2 * depth[self.meeting_brokers]
        return found


def grow_tree(brokers: int, fanout: float, family: Family, seed: int, number: int = 0) -> BrokerTree:
    """One of a family's overlays, whose inner brokers have so many children on the average."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"an overlay has from 1 to {BROKERS_MAX:,} brokers, not {brokers:,}")
    if family != "geometric" and fanout != int(fanout):
        raise ConfigError(f"the fan-out of a {family} tree is a whole number, not {fanout}")
    if fanout < 1:
        raise ConfigError(f"the fan-out is at least 1, not {fanout}")
    if family == "complete":
        return BrokerTree((np.maximum(np.arange(brokers) - 1, 0) // int(fanout)).astype(np.int16))
    # A tree with a child each is a path, for which no law is needed.
    again = log1p(-1 / fanout) if family == "geometric" and fanout > 1 else -np.inf
    most = int(2 * fanout - 1) if family == "uniform" else 0
    return BrokerTree(_grow(brokers, again, most, stream(seed, "overlay", family, number)))


@jit
def _grow(brokers: int, again: float, most: int, chance: Stream) -> Brokers:
    """Children are one and as many more as a coin allows; or, with `most`, any number up to it."""
    parents = np.zeros(brokers, np.int16)
    grown = 1
    for parent in range(brokers):
        more = draw_below(chance, most) if most else int(log(1.0 - draw_unit(chance)) / again)
        for _ in range(min(1 + more, brokers - grown)):
            parents[grown] = parent
            grown += 1
        if grown == brokers:
            break
    return parents


@jit
def _depths(parents: Brokers) -> Brokers:
    depth = np.zeros(parents.size, np.int16)
    for broker in range(1, parents.size):
        depth[broker] = depth[parents[broker]] + 1
    return depth


@jit
def _meets(parents: Brokers) -> Brokers:
    """Who comes later is nobody's ancestor among those before, so its path to them goes by its parent."""
    meets = np.zeros((parents.size, parents.size), np.int16)
    for broker in range(1, parents.size):
        meets[broker, broker] = broker
        for other in range(broker):
            meets[broker, other] = meets[other, broker] = meets[parents[broker], other]
    return meets


BROKERS_MAX = 10_000
"""Tables have the square of it."""
