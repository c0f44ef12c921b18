"""What shell games hand over (P0 4.5): names, and with them who must be a reader.

To exchange places, two nodes tell each other their neighbours in the mesh, and those are told who their new neighbour
is. An insider who takes part, or stands beside, learns names of members; and a game comes after the subscriptions,
so what is learnt adds to what was seen. Nobody leaves the mesh by it, so names of one epoch are a part of V_a.

Closure: a member is there for its own sake, or because the way of a member one hop further out leads through it. If no
neighbour one hop further is named, it is likely to read. Fewer names make this a guess; over epochs they add up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import LinkObservations


def find_named_members(sights: LinkObservations) -> NDArray[np.bool_]:
    """E x nodes: who plays in an insider's sight, or is named to one as a neighbour: all of the mesh."""
    names = np.zeros(sights.present.shape, np.bool_)
    names[sights.handovers[:, 0], sights.handovers[:, 3]] = True
    names[sights.handovers[:, 0], sights.handovers[:, 5]] = True
    return names


def find_outermost_members(graph: Graph, names: NDArray[np.bool_], distance: NDArray[np.int32]) -> NDArray[np.bool_]:
    """E x nodes: who is named while none of its neighbours one hop further from the origin is."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    found = names.copy()
    for epoch, far in enumerate(distance):
        further = names[epoch, graph.targets] & (far[graph.targets] == far[ends] + 1)
        found[epoch, ends[further]] = False
    return found


def score_handover(graph: Graph, sights: LinkObservations, distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """By node: in which share of the epochs in which it was there it was named, and outermost.

    `distance` is E x nodes, from the origin.
    """
    names = find_named_members(sights)
    weight = names.astype(np.float64) + find_outermost_members(graph, names, distance)
    return np.asarray(weight.sum(axis=0) / np.maximum(1, np.count_nonzero(sights.present, axis=0)), np.float64)
