"""Byzantine brokers that drop publications, and the retransmissions that they cause.

P4 draws f Byzantine brokers by Zipf's law over the ranks of brokers. That fits P4's numbers only if a broker can be
drawn twice. P4 counts one retransmission for each Byzantine broker on a path: the sender notices, and sends again to
another replica of the same virtual node, every time. Three defences that P4 leaves for the future are here beside it:

- *failover*: a sender that lost a publication suspects the broker, rightly with probability `finds`, and sends its next
  publications to another replica at once. After `holds` publications it tries the broker again, because suspicion can
  be wrong;
- *coded*: content is sent as r blocks of which any k are enough, block i by replica i of each node. One replica of a
  node with a Byzantine broker drops its block; only blocks missing beyond r - k are sent again;
- *replicated*: every replica sends to every replica of the next node, and nothing is sent again.

Content is counted in units of one publication over one edge: to the first node, between nodes, and to the subscriber.
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
    """Totals over all interactions."""

    retransmissions: float
    content: float
    """Content sent, with retransmissions."""


def draw_byzantine(
    brokers: int, count: int, alpha: float, replacement: bool, seed: int, number: int
) -> NDArray[np.bool_]:
    """The Byzantine brokers of `count` draws; with replacement there can be fewer."""
    if not 0 <= count <= brokers:
        raise ConfigError(f"of {brokers} brokers, {count} cannot be Byzantine")
    weights = zipf_weights(brokers, alpha)
    # Without replacement, by exponential clocks: larger weights ring first.
    rng = np.random.default_rng(stream(seed, "byzantine", number))
    marked = np.zeros(brokers, np.bool_)
    if replacement:
        marked[rng.choice(brokers, count, p=weights)] = True
    else:
        marked[np.argsort(rng.exponential(size=brokers) / weights)[:count]] = True
    return marked


@dataclass(frozen=True, eq=False)
class BrokerTraffic:
    """The traffic of a trace on an overlay, counted once for all sets of Byzantine brokers."""

    matrix: Matrix
    overlay: BrokerTree

    def plain(self, marked: NDArray[np.bool_]) -> LossCost:
        """No sender learns from a loss."""
        receiver, many = self._handed
        again = float(many[marked[receiver]].sum())
        return LossCost(again, self._once + again)

    def failover(self, marked: NDArray[np.bool_], finds: float, holds: int, seed: int, number: int) -> LossCost:
        """Every sender to a broker learns by itself. The publishers at a broker count as one sender."""
        if not 0 < finds <= 1 or holds < 0:
            raise ConfigError(
                "a loss is put down to who caused it with a probability above 0; nobody is held off backwards"
            )
        receiver, many = self._handed
        again = float(_suspect(many[marked[receiver]], finds, holds, stream(seed, "failover", number)))
        return LossCost(again, self._once + again)

    def coded(self, marked: NDArray[np.bool_], replicas: int, needed: int, seed: int, number: int) -> LossCost:
        """Retransmissions are blocks, each a part of a publication."""
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
        """Content without losses: from the publisher to the first node, over the edges between nodes, and to the
        subscriber."""
        return float((self.matrix * (self.overlay.edges + 2)).sum())

    @cached_property
    def _handed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Receivers, and numbers of publications: from the publishers at each broker, then to each broker from its
        parent, then to each parent from its child.

        Publications that go up from a broker come from its subtree, and leave the subtree.
        """
        parents, brokers = self.overlay.parents.astype(np.int64), self.overlay.brokers
        published, read = (self.matrix.sum(axis=axis) for axis in (1, 0))
        turning = np.zeros(brokers, np.int64)
        np.add.at(turning, self.overlay.meeting_brokers.ravel(), self.matrix.ravel())
        staying, leaving, coming = (_below(self.overlay.parents, many) for many in (turning, published, read))
        receiver = np.concatenate([np.arange(brokers), np.arange(1, brokers), parents[1:]])
        return receiver, np.concatenate([published, (coming - staying)[1:], (leaving - staying)[1:]])


@jit
def _below(parents: Brokers, many: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum over each broker and its descendants."""
    found = many.copy()
    for broker in range(parents.size - 1, 0, -1):
        found[parents[broker]] += found[broker]
    return found


@jit
def _suspect(handed: NDArray[np.int64], finds: float, holds: int, chance: Stream) -> int:
    """Number of losses, sender by sender."""
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
    """Number of blocks to send again. The path to a later broker goes by its parent, as in `meeting_brokers`."""
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
