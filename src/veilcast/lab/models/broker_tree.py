"""P4's overlays: trees of brokers, with the distance of any two brokers and the place where their paths meet.

"A fully connected overlay without any redundant path" is a tree. A tree has two ends for each edge, so a fan-out of 2
or 5 must be the number of children of inner brokers. There are three families: trees grown breadth-first whose brokers
have at least one child, by a geometric or by a uniform distribution of the same mean, until there are enough brokers;
and the complete tree. Brokers are numbered in the order of growth, the root 0. So a parent's number is below its
children's, and a broker's rank in Zipf's law is its number.

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
    """The parent of each broker; the root is its own parent."""

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
        """The broker nearest to the root on the path of each pair."""
        return _meets(self.parents)

    @cached_property
    def edges(self) -> Brokers:
        """The number of edges between each pair."""
        depth = self.depth
        found: Brokers = depth[:, None] + depth[None, :] - 2 * depth[self.meeting_brokers]
        return found


def grow_tree(brokers: int, fanout: float, family: Family, seed: int, number: int = 0) -> BrokerTree:
    """A tree of a family, whose inner brokers have `fanout` children on average."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"an overlay has from 1 to {BROKERS_MAX:,} brokers, not {brokers:,}")
    if family != "geometric" and fanout != int(fanout):
        raise ConfigError(f"the fan-out of a {family} tree is a whole number, not {fanout}")
    if fanout < 1:
        raise ConfigError(f"the fan-out is at least 1, not {fanout}")
    if family == "complete":
        return BrokerTree((np.maximum(np.arange(brokers) - 1, 0) // int(fanout)).astype(np.int16))
    # A tree with one child each is a path, and needs no draw.
    again = log1p(-1 / fanout) if family == "geometric" and fanout > 1 else -np.inf
    most = int(2 * fanout - 1) if family == "uniform" else 0
    return BrokerTree(_grow(brokers, again, most, stream(seed, "overlay", family, number)))


@jit
def _grow(brokers: int, again: float, most: int, chance: Stream) -> Brokers:
    """A broker has one child and a geometric number more; or, with `most`, a uniform number up to it."""
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
    """A later broker is no ancestor of earlier ones, so its path to them goes by its parent."""
    meets = np.zeros((parents.size, parents.size), np.int16)
    for broker in range(1, parents.size):
        meets[broker, broker] = broker
        for other in range(broker):
            meets[broker, other] = meets[other, broker] = meets[parents[broker], other]
    return meets


BROKERS_MAX = 10_000
"""Tables have the square of this number of entries."""
