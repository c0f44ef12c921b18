"""Chain trilateration: hash chains tell colluders how much further one neighbour is from the origin than another.

A node sends on the value of the hop it is at, so of any two that insiders hold, hashing leads from the nearer to the
further, and the number of hashes is the difference of the two distances (P1 2.1 wants it so: this is how loops are
told). The overlay is known, so every node v can be tried as the origin: its distances to all who were heard, less
those that the chain shows, must be one constant, the start of the chain. An offset at the start cancels out. The score
is minus the spread of that difference: zero for whoever fits exactly.

Every honest neighbour's value counts, not only that of the one it was heard from first: a few insiders hear some tens
of nodes, and in a small world of some hundred nodes that leaves one candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilcast.crypto.chain import LENGTH_MAX, same_chain
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.graph import Graph


def scores(graph: Graph, peer: NDArray[np.int32], values: Sequence[bytes]) -> NDArray[np.float64]:
    """By node, of one advert that the neighbours `peer` sent with these values.

    Values that are on no chain with the first say nothing, and are left out.
    """
    hops = further(values)
    told = ~np.isnan(hops)
    differences = _distances(graph.offsets, graph.targets, peer[told]) - hops[told][:, None]
    return -np.asarray(differences.var(axis=0), np.float64)


def further(values: Sequence[bytes]) -> NDArray[np.float64]:
    """By value, how many hops further it is than the first; no number where it is on no chain with that."""
    hops = [same_chain(values[0], value, LENGTH_MAX) for value in values]
    return np.array([np.nan if hop is None else hop for hop in hops], np.float64)


@compiled
def _distances(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], sources: NDArray[np.int32]
) -> NDArray[np.float64]:
    """A row for each source; whom it does not reach is further than anybody."""
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
