"""Features of a node for a classifier: twenty-two numbers from what insiders saw in some epochs.

Belief propagation (`group_tests`) extracts most of the information but assumes how a mesh is formed. These features
assume nothing. They say how often a node subscribed with an insider where it could have, and with how many; when;
whether it stopped, as covers do when their time is over and subscribers do not; invitations; what shell games revealed;
whether any named node lies further out, for which it could forward (closure); and the same of its neighbours.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.attack.insider.swap_handover import find_named_members, find_outermost_members
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import (
    ASKED,
    AWAY,
    FOLLOWED,
    INVITED,
    RECRUITED,
    REFUSED,
    SILENT,
    LinkObservations,
)


def extract_node_features(graph: Graph, sights: LinkObservations, belief: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nodes x `FEATURE_NAMES`; `belief` is the result of the group tests on the same observations."""
    nodes, enemy, half = graph.nodes, sights.coalition, len(sights.origin) // 2
    seen, delay, observer, peer = sights.seen, sights.delay, sights.observer, sights.peer
    far = origin_distances(graph, sights)
    there = np.maximum(1, np.count_nonzero(sights.present, axis=0))

    def each(noticed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Number of epochs and links in which something was noticed, by node."""
        return np.bincount(peer, noticed.sum(axis=0, dtype=np.float64), nodes).astype(np.float64)

    asked = seen == ASKED
    could = (seen != AWAY) & (far[:, peer] == far[:, observer] + 1)
    asks, chances = each(asked), each(could)
    at_once = each(delay == 0)
    waited = np.bincount(peer, np.where(asked & (delay >= 0), delay, 0).sum(axis=0), nodes)
    stopped = each(asked[:-1] & (seen[1:] == SILENT) & could[1:])
    began = each(asked[1:] & (seen[:-1] == SILENT) & could[:-1])
    late = each(asked[half:]) / np.maximum(1, each(could[half:]))
    names = find_named_members(sights)
    near = _Neighbours(graph)
    columns = (
        belief,
        asks / np.maximum(1, chances),
        np.log1p(asks),
        (chances - asks) / np.maximum(1, chances),
        np.log1p(chances - asks),
        np.bincount(peer, asked.any(axis=0), nodes),
        at_once,
        waited / np.maximum(1, asks),
        stopped / np.maximum(1, asks),
        began / np.maximum(1, asks),
        late,
        each(seen == RECRUITED) / there,
        each(seen == REFUSED) / there,
        each(seen == INVITED) / there,
        each(seen == FOLLOWED) / there,
        names.sum(axis=0) / there,
        np.log1p(np.bincount(sights.handovers[:, 3], minlength=nodes)),
        find_outermost_members(graph, names, far).sum(axis=0) / there,
        near.mean(enemy.astype(np.float64)),
        near.mean(belief),
        near.largest(belief),
        np.where(far >= 0, far, 0).sum(axis=0) / there,
    )
    return np.column_stack(columns)


class _Neighbours:
    def __init__(self, graph: Graph) -> None:
        self._nodes, self._targets, self._degrees = graph.nodes, graph.targets, graph.degrees
        self._ends = np.repeat(np.arange(graph.nodes), graph.degrees)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._ends, values[self._targets], self._nodes) / np.maximum(1, self._degrees)

    def largest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        most = np.full(self._nodes, values.min())
        np.maximum.at(most, self._ends, values[self._targets])
        return most


FEATURE_NAMES: Final = (
    "belief",
    "asked",
    "times asked",
    "missed",
    "times missed",
    "observers",
    "at once",
    "waited",
    "stopped",
    "began",
    "asked lately",
    "recruited",
    "refused",
    "invited",
    "followed",
    "named",
    "played",
    "outermost",
    "hostile neighbours",
    "neighbours' belief",
    "best neighbour's belief",
    "distance",
)
