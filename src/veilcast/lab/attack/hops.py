"""Hop distances in the overlay, and the links that lead away from a root.

The overlay is granted to the observer (P0 2.3), and adverts flood it, so distances are no secret. Floods from many
roots run side by side: one product with the adjacency matrix takes all of them one hop further.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from veilcast.lab.models.graph import Graph


def hop_distances(graph: Graph, roots: NDArray[np.int32]) -> NDArray[np.int32]:
    """A row for each root: the distance of every node; -1 for nodes that no flood reaches."""
    ones = np.ones(len(graph.targets), np.float32)
    adjacency = csr_array((ones, graph.targets, graph.offsets), shape=(graph.nodes, graph.nodes))
    distance = np.full((graph.nodes, len(roots)), -1, np.int32)
    edge = np.zeros((graph.nodes, len(roots)), np.bool_)
    edge[roots, np.arange(len(roots))] = True
    hop = 0
    while edge.any():
        distance[edge] = hop
        edge = (adjacency @ edge.astype(np.float32) > 0) & (distance < 0)
        hop += 1
    return np.ascontiguousarray(distance.T)


def distances_from(graph: Graph, root: int) -> NDArray[np.int32]:
    distance: NDArray[np.int32] = hop_distances(graph, np.array([root], np.int32))[0]
    return distance


def outward_links(graph: Graph, distance: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The near ends and the far ends of every link that leads one hop further from the root."""
    near = np.repeat(np.arange(graph.nodes, dtype=np.int32), graph.degrees)
    down = (distance[near] >= 0) & (distance[graph.targets] == distance[near] + 1)
    return near[down], graph.targets[down]
