"""Presence: who publishes was there, whenever something was published. It needs one reader, and eyes for who is there.

With a publication in every epoch, and a tenth of all others away in each, the candidates shrink by a tenth each time:
an intersection attack that no overlay can help against. If notes are held back, for any number of epochs up to some
known one, presence in any of those counts, and the evidence thins out.

A publisher that hands over to the same neighbour for life, and waits while that one is away, is silent in just the
epochs in which its successor is not there. Readers who know that it would have had something to say find the successor
by its absences, and the publisher is one of its neighbours.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.graph import Graph


def publishers(present: NDArray[np.bool_], published: NDArray[np.bool_], held: int = 0) -> NDArray[np.float64]:
    """By node, the log-likelihood that it published in these epochs; `present` is E x nodes.

    A note may have been held back for 0 to `held` epochs, each equally likely. That somebody is there more often than
    others says nothing by itself, so it is presence then against presence at all that counts.
    """
    usual = np.log((np.count_nonzero(present, axis=0) + 1) / (len(present) + 1))
    total = np.zeros(present.shape[1])
    for epoch in np.flatnonzero(published):
        total += np.log(present[max(0, epoch - held) : epoch + 1].mean(axis=0) + _MISTAKEN) - usual
    return total


def successors(present: NDArray[np.bool_], published: NDArray[np.bool_]) -> NDArray[np.float64]:
    """By node, the log-likelihood that somebody who would publish in every epoch waits for it."""
    return np.asarray(np.log((present == published[:, None]) + _MISTAKEN).sum(axis=0), np.float64)


def behind(graph: Graph, successor: NDArray[np.float64]) -> NDArray[np.float64]:
    """By node, the log-likelihood that it publishes: that any of its neighbours, as likely as another, is the one."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    weight = np.exp(successor - successor.max())
    shares = np.bincount(ends, weight[graph.targets], graph.nodes) / np.maximum(1, graph.degrees)
    return np.log(shares + _TINY)


_MISTAKEN: Final = 1e-4
"""The probability that presence was not what it seemed."""
_TINY: Final = 1e-30
