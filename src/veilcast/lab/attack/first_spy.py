"""First-spy: whoever passed a message to the coalition first is its source (Fanti and others 2017, "Dandelion").

A flood spreads from its origin by all links, and the neighbour that an insider hears it from first is the nearest to
the origin that the coalition has heard of. If an insider is next to the origin, and every link takes equally long, it
is the origin itself; where links take different times, a faster way round may overtake.

Nodes are scored by how early an insider had it from them, so that the whole order can be judged, and not the first
guess alone. Of those who were equally early the one is taken from whom more insiders had it then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores(peer: NDArray[np.int32], time: NDArray[np.float64], nodes: int) -> NDArray[np.float64]:
    """By node, of one message that insiders had from `peer[i]` at `time[i]`; -inf for who was not heard.

    Only the order of the scores says anything.
    """
    earliest = np.full(nodes, np.inf)
    np.minimum.at(earliest, peer, time)
    voices = np.bincount(peer[time == earliest[peer]], minlength=nodes)
    heard = np.flatnonzero(np.isfinite(earliest))
    ranked = np.lexsort((voices[heard], -earliest[heard]))
    ordered = np.full(nodes, -np.inf)
    keys = np.column_stack((earliest[heard], voices[heard]))[ranked]
    steps = np.append(0, np.cumsum((np.diff(keys, axis=0) != 0).any(axis=1))) if len(keys) else np.empty(0)
    ordered[heard[ranked]] = steps
    return ordered


def votes(
    message: NDArray[np.integer], peer: NDArray[np.int32], time: NDArray[np.float64], nodes: int
) -> NDArray[np.float64]:
    """By node, in what share of the messages it is the first guess; those who are equally suspect share one."""
    total = np.zeros(nodes)
    numbers, which = np.unique(message, return_inverse=True)
    order = np.argsort(which, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(which))[:-1]) if len(numbers) else ():
        first = rows[time[rows] == time[rows].min()]
        voices = np.bincount(peer[first])
        best = np.flatnonzero(voices == voices.max())
        total[best] += 1 / len(best)
    return total / max(1, len(numbers))
