"""Swap handover: the names that shell games reveal (P0 4.5), and the subscribers among them.

To exchange places, two nodes tell each other their neighbours in the mesh, and those learn their new neighbour. An
insider that takes part, or stands beside, learns names of members. A game comes after the subscriptions, so this adds
to what was seen. No node leaves the mesh by a game, so the names of one epoch are a part of V_a.

Closure: a member is there as a subscriber, or because the path of a member one hop further out leads through it. If no
neighbour one hop further is named, the member is a likely subscriber. With few names this is a guess; over epochs it
adds up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import LinkObservations


def find_named_members(sights: LinkObservations) -> NDArray[np.bool_]:
    """E x nodes: nodes that play before an insider, or that are named to one as a neighbour. All are in the mesh."""
    names = np.zeros(sights.present.shape, np.bool_)
    names[sights.handovers[:, 0], sights.handovers[:, 3]] = True
    names[sights.handovers[:, 0], sights.handovers[:, 5]] = True
    return names


def find_outermost_members(graph: Graph, names: NDArray[np.bool_], distance: NDArray[np.int32]) -> NDArray[np.bool_]:
    """E x nodes: nodes that are named while no neighbour one hop further from the origin is."""
    ends = np.repeat(np.arange(graph.nodes), graph.degrees)
    found = names.copy()
    for epoch, far in enumerate(distance):
        further = names[epoch, graph.targets] & (far[graph.targets] == far[ends] + 1)
        found[epoch, ends[further]] = False
    return found


def score_handover(graph: Graph, sights: LinkObservations, distance: NDArray[np.int32]) -> NDArray[np.float64]:
    """The share of its present epochs in which it was named, plus the share in which it was outermost, by node.

    `distance` is E x nodes, in hops from the origin.
    """
    names = find_named_members(sights)
    weight = names.astype(np.float64) + find_outermost_members(graph, names, distance)
    return np.asarray(weight.sum(axis=0) / np.maximum(1, np.count_nonzero(sights.present, axis=0)), np.float64)
