"""Where an advert's flood began, as a coalition infers it: first spy and chain trilateration.

First spy (Fanti and others 2017, "Dandelion"): the neighbour that first passed a message to the coalition is its
source. A flood spreads from its origin over all links, and the neighbour that an insider hears first is the nearest to
the origin that the coalition has heard. If an insider is next to the origin and every link takes equally long, that
neighbour is the origin itself. Where links take different times, a faster detour may overtake. Nodes are scored by how
early an insider heard them, so that the whole order can be judged, not the first guess alone. Ties go to the node that
more insiders heard at that time.

Chain trilateration: hash chains tell a coalition how much further one neighbour is from the origin than another. A node
sends on the value of its own hop. So of any two values that insiders hold, hashing leads from the nearer to the
further, and the number of hashes is the difference of the two distances (P1 2.1 needs this to detect loops). The
overlay is known, so every node v can be tried as the origin. Its distances to all heard nodes, minus those that the
chain shows, must be one constant: the start of the chain. An offset at the start cancels out. The score is minus the
variance of that difference: 0 for a node that fits exactly. The value of every honest neighbour counts, not only the
first one heard. A few insiders hear some tens of nodes, and in a small world of some hundred nodes that leaves one
candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.hash_chain import LENGTH_MAX, hops_between
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.numba_cache import jit


def rank_first_spy(peer: NDArray[np.int32], time: NDArray[np.float64], nodes: int) -> NDArray[np.float64]:
    """Rank of each node for one message that insiders received from `peer[i]` at `time[i]`; -inf for nodes that were
    not heard.

    Only the order of the scores has a meaning.
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


def score_first_spy(
    message: NDArray[np.integer], peer: NDArray[np.int32], time: NDArray[np.float64], nodes: int
) -> NDArray[np.float64]:
    """Its share of the messages for which it is the first guess, by node; equally suspect nodes share one message."""
    total = np.zeros(nodes)
    numbers, which = np.unique(message, return_inverse=True)
    order = np.argsort(which, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(which))[:-1]) if len(numbers) else ():
        first = rows[time[rows] == time[rows].min()]
        voices = np.bincount(peer[first])
        best = np.flatnonzero(voices == voices.max())
        total[best] += 1 / len(best)
    return total / max(1, len(numbers))


def score_trilateration(graph: Graph, peer: NDArray[np.int32], values: Sequence[bytes]) -> NDArray[np.float64]:
    """Score each node as the origin of one advert that the neighbours `peer` sent with these values.

    Values on no chain with the first one are left out.
    """
    hops = chain_hops(values)
    told = ~np.isnan(hops)
    differences = _distances(graph.offsets, graph.targets, peer[told]) - hops[told][:, None]
    return -np.asarray(differences.var(axis=0), np.float64)


def chain_hops(values: Sequence[bytes]) -> NDArray[np.float64]:
    """How many hops further it is than the first value, by value; NaN if it is on no chain with that."""
    hops = [hops_between(values[0], value, LENGTH_MAX) for value in values]
    return np.array([np.nan if hop is None else hop for hop in hops], np.float64)


@jit
def _distances(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], sources: NDArray[np.int32]
) -> NDArray[np.float64]:
    """A row for each source; unreachable nodes are further than any other."""
    nodes = offsets.size - 1
    distance, queue = np.full((sources.size, nodes), float(nodes)), np.empty(nodes, np.int32)
    for row in range(sources.size):
        queue[0], head, tail = sources[row], 0, 1
        distance[row, sources[row]] = 0.0
        while head < tail:
            u = queue[head]
            head += 1
            for slot in range(offsets[u], offsets[u + 1]):
                v = targets[slot]
                if distance[row, v] == nodes:
                    distance[row, v] = distance[row, u] + 1.0
                    queue[tail] = v
                    tail += 1
    return distance
