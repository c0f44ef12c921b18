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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.kernels.chance import Stream, below, stream, unit
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.overlay_trees import Brokers, Overlay
from veilcast.lab.kernels.overlay_users import Matrix, zipf


class Loss(NamedTuple):
    """Of all interactions."""

    again: float
    """Retransmissions."""
    content: float
    """Sent, those included."""


def byzantine(brokers: int, count: int, alpha: float, replacement: bool, seed: int, number: int) -> NDArray[np.bool_]:
    """Which brokers are, of `count` draws; with replacement they may be fewer."""
    if not 0 <= count <= brokers:
        raise ConfigError(f"of {brokers} brokers, {count} cannot be Byzantine")
    weights = zipf(brokers, alpha)
    # Without replacement, by exponential clocks: the weightier ring first.
    rng = np.random.default_rng(stream(seed, "byzantine", number))
    marked = np.zeros(brokers, np.bool_)
    if replacement:
        marked[rng.choice(brokers, count, p=weights)] = True
    else:
        marked[np.argsort(rng.exponential(size=brokers) / weights)[:count]] = True
    return marked


def plain(matrix: Matrix, overlay: Overlay, marked: NDArray[np.bool_]) -> Loss:
    """Nobody learns anything from a loss."""
    again = float((matrix * overlay.on_paths(marked)).sum())
    return Loss(again, _once(matrix, overlay) + again)


def failover(
    matrix: Matrix, overlay: Overlay, marked: NDArray[np.bool_], finds: float, holds: int, seed: int, number: int
) -> Loss:
    """Every sender to a broker learns for itself; those who publish at a broker are one sender."""
    if not 0 < finds <= 1 or holds < 0:
        raise ConfigError(
            "a loss is put down to who caused it with a probability above 0; nobody is held off backwards"
        )
    handed = _handed(matrix, overlay.parents, overlay.depth, marked)
    again = float(_suspect(handed[handed > 0], finds, holds, stream(seed, "failover", number)))
    return Loss(again, _once(matrix, overlay) + again)


def coded(
    matrix: Matrix, overlay: Overlay, marked: NDArray[np.bool_], replicas: int, needed: int, seed: int, number: int
) -> Loss:
    """What is sent again are blocks, each a part of a publication."""
    if not 1 <= needed <= replicas <= _REPLICAS_MAX:
        raise ConfigError(f"of {replicas} blocks, {needed} cannot be enough; there are {_REPLICAS_MAX} at most")
    chance, guilty = stream(seed, "guilty", number), np.zeros(overlay.brokers, np.int64)
    for broker in np.flatnonzero(marked):
        guilty[broker] = 1 << below(chance, replicas)
    again = float(_missing(matrix, overlay.parents, overlay.depth, guilty, replicas - needed))
    return Loss(again, (_once(matrix, overlay) * replicas + again) / needed)


def replicated(matrix: Matrix, overlay: Overlay, replicas: int) -> Loss:
    between = float((matrix * overlay.edges).sum())
    return Loss(0.0, replicas**2 * between + 2 * replicas * float(matrix.sum()))


def _once(matrix: Matrix, overlay: Overlay) -> float:
    """From the publisher to the first node, over the edges between nodes, and to the subscriber."""
    return float((matrix * (overlay.edges + 2)).sum())


@compiled
def _handed(matrix: Matrix, parents: Brokers, depth: Brokers, marked: NDArray[np.bool_]) -> Matrix:
    """Sender x Byzantine broker: how many publications; on the diagonal those of who publishes there."""
    handed = np.zeros(matrix.shape, np.int64)
    for u in range(parents.size):
        for v in range(parents.size):
            many = matrix[u, v]
            if not many:
                continue
            if marked[u]:
                handed[u, u] += many
            up, down = u, v
            while up != down:
                if depth[up] >= depth[down]:
                    before, up = up, parents[up]
                    if marked[up]:
                        handed[before, up] += many
                else:
                    if marked[down]:
                        handed[parents[down], down] += many
                    down = parents[down]
    return handed


@compiled
def _suspect(handed: NDArray[np.int64], finds: float, holds: int, chance: Stream) -> int:
    """Losses, sender by sender."""
    lost = 0
    for many in handed:
        left = many
        while left > 0:
            left -= 1
            lost += 1
            if unit(chance) < finds:
                left -= holds
    return lost


@compiled
def _missing(matrix: Matrix, parents: Brokers, depth: Brokers, guilty: NDArray[np.int64], spare: int) -> int:
    """Blocks that must be sent again."""
    again = 0
    for u in range(parents.size):
        for v in range(parents.size):
            if not matrix[u, v]:
                continue
            up, down, lost = u, v, guilty[u] | guilty[v]
            while up != down:
                if depth[up] >= depth[down]:
                    up = parents[up]
                    lost |= guilty[up]
                else:
                    down = parents[down]
                    lost |= guilty[down]
            many = 0
            while lost:
                many += lost & 1
                lost >>= 1
            again += matrix[u, v] * max(0, many - spare)
    return again


_REPLICAS_MAX = 32
