"""Byzantine brokers that drop what they should hand on, and what is sent again for it.

P4 draws f of them by Zipf's law over the ranks of brokers, which fits its numbers only if one may be drawn twice, and
counts one retransmission for each that a path meets: whoever handed on to it notices, and sends again to another
replica of the same virtual node, every time. What P4 leaves for the future is here beside it:
- *failover*: who has lost something to a broker suspects it, rightly with probability `finds`, and sends its next
  publications to another replica at once; after so many the broker is tried again, for nobody can be sure;
- *coded*: content goes as r blocks of which any k are enough, block i by replica i of each node. One replica of a node
  with a Byzantine broker drops its block; only what is missing beyond r - k is sent again;
- *replicated*: every replica sends to every replica of the next node, and nothing is ever sent again.

Content is counted in pieces of one publication's size over one edge: to the first node, between nodes, and out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.broker_tree import Brokers, BrokerTree
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_unit, stream
from veilcast.lab.models.user_placement import Matrix, zipf_weights


class LossCost(NamedTuple):
    """Of all interactions."""

    retransmissions: float
    """Retransmissions."""
    content: float
    """Sent, those included."""


def draw_byzantine(
    brokers: int, count: int, alpha: float, replacement: bool, seed: int, number: int
) -> NDArray[np.bool_]:
    """Which brokers are, of `count` draws; with replacement they may be fewer."""
    if not 0 <= count <= brokers:
        raise ConfigError(f"of {brokers} brokers, {count} cannot be Byzantine")
    weights = zipf_weights(brokers, alpha)
    # Without replacement, by exponential clocks: the weightier ring first.
    rng = np.random.default_rng(stream(seed, "byzantine", number))
    marked = np.zeros(brokers, np.bool_)
    if replacement:
        marked[rng.choice(brokers, count, p=weights)] = True
    else:
        marked[np.argsort(rng.exponential(size=brokers) / weights)[:count]] = True
    return marked


@dataclass(frozen=True, eq=False)
class BrokerTraffic:
    """Of a trace on an overlay; whatever many sets of brokers are Byzantine there, it is counted once."""

    matrix: Matrix
    overlay: BrokerTree

    def plain(self, marked: NDArray[np.bool_]) -> LossCost:
        """Nobody learns anything from a loss."""
        receiver, many = self._handed
        again = float(many[marked[receiver]].sum())
        return LossCost(again, self._once + again)

    def failover(self, marked: NDArray[np.bool_], finds: float, holds: int, seed: int, number: int) -> LossCost:
        """Every sender to a broker learns for itself; those who publish at a broker are one sender."""
        if not 0 < finds <= 1 or holds < 0:
            raise ConfigError(
                "a loss is put down to who caused it with a probability above 0; nobody is held off backwards"
            )
        receiver, many = self._handed
        again = float(_suspect(many[marked[receiver]], finds, holds, stream(seed, "failover", number)))
        return LossCost(again, self._once + again)

    def coded(self, marked: NDArray[np.bool_], replicas: int, needed: int, seed: int, number: int) -> LossCost:
        """What is sent again are blocks, each a part of a publication."""
        if not 1 <= needed <= replicas <= _REPLICAS_MAX:
            raise ConfigError(f"of {replicas} blocks, {needed} cannot be enough; there are {_REPLICAS_MAX} at most")
        chance, guilty = stream(seed, "guilty", number), np.zeros(self.overlay.brokers, np.uint32)
        for broker in np.flatnonzero(marked):
            guilty[broker] = 1 << draw_below(chance, replicas)
        again = float(_missing(self.matrix, self.overlay.parents, guilty, replicas - needed))
        return LossCost(again, (self._once * replicas + again) / needed)

    def replicated(self, replicas: int) -> LossCost:
        between = float((self.matrix * self.overlay.edges).sum())
        return LossCost(0.0, replicas**2 * between + 2 * replicas * float(self.matrix.sum()))

    @cached_property
    def _once(self) -> float:
        """From the publisher to the first node, over the edges between nodes, and to the subscriber."""
        return float((self.matrix * (self.overlay.edges + 2)).sum())

    @cached_property
    def _handed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By sender, to whom it hands on how many publications: those who publish at a broker, then each broker's
        parent, then its children.

        What goes up from a broker comes from below it, or from itself, and does not stay there."""
        parents, brokers = self.overlay.parents.astype(np.int64), self.overlay.brokers
        published, read = (self.matrix.sum(axis=axis) for axis in (1, 0))
        turning = np.zeros(brokers, np.int64)
        np.add.at(turning, self.overlay.meeting_brokers.ravel(), self.matrix.ravel())
        staying, leaving, coming = (_below(self.overlay.parents, many) for many in (turning, published, read))
        receiver = np.concatenate([np.arange(brokers), np.arange(1, brokers), parents[1:]])
        return receiver, np.concatenate([published, (coming - staying)[1:], (leaving - staying)[1:]])


@jit
def _below(parents: Brokers, many: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each broker and all below it."""
    found = many.copy()
    for broker in range(parents.size - 1, 0, -1):
        found[parents[broker]] += found[broker]
    return found


@jit
def _suspect(handed: NDArray[np.int64], finds: float, holds: int, chance: Stream) -> int:
    """Losses, sender by sender."""
    lost = 0
    for many in handed:
        left = many
        while left > 0:
            left -= 1
            lost += 1
            if draw_unit(chance) < finds:
                left -= holds
    return lost


@jit
def _missing(matrix: Matrix, parents: Brokers, guilty: NDArray[np.uint32], spare: int) -> int:
    """Blocks that must be sent again. As with `meets`, who comes later is met by way of its parent."""
    again = 0
    lost = np.zeros(matrix.shape, np.uint32)
    for u in range(parents.size):
        lost[u, u] = guilty[u]
        for v in range(u):
            lost[u, v] = lost[v, u] = lost[parents[u], v] | guilty[u]
        for v in range(u + 1):
            many = 0
            left = lost[u, v]
            while left:
                many += 1
                left &= left - np.uint32(1)
            if many > spare:
                again += (matrix[u, v] + (matrix[v, u] if u != v else 0)) * (many - spare)
    return again


_REPLICAS_MAX = 32
