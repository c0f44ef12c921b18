"""The board of the shell game: the places of a mesh, numbered breadth first, and how it fills while the mesh is built.

In this order the children of a place stand beside one another, from `first[place]` to `first[place + 1]`, and all of
the board is a few arrays as long as the mesh is large, not the overlay: even at a million nodes, a game is all but in
the cache.

A mesh fills from its subscribers. Each joins when the advert reaches it, as many hops after its start as it is far from
the publisher, and asks its parent; a forwarder joins when the first request arrives, one hop later, and asks in turn. A
cover, below whom nobody subscribes, joins one hop after its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Board:
    nodes: NDArray[np.int32]
    """Who has each place at the beginning; the publisher the first."""
    parent: NDArray[np.int32]
    first: NDArray[np.int32]
    """Where the children of each place begin; those of the last end at its end."""
    inner: NDArray[np.int32]
    """The places from which a game can begin: who has one has children, and is not the publisher."""


def lay(mesh: Mesh) -> Board:
    nodes, parent, first = _laid(mesh.publisher, len(mesh.members), *mesh.children)
    inner = np.flatnonzero(first[1:] > first[:-1]).astype(np.int32)
    return Board(nodes, parent, first, inner[inner > 0])


def joined(board: Board, mesh: Mesh, subscribers: NDArray[np.int32]) -> NDArray[np.int32]:
    """The hop at which each place is taken."""
    told = np.full(len(mesh.parent), NEVER, np.int32)
    told[subscribers] = mesh.distance[subscribers]
    return _joined(board.parent, told[board.nodes])


@compiled
def _laid(
    publisher: int, members: int, offsets: NDArray[np.int64], children: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    nodes, parent, first = np.empty(members, np.int32), np.empty(members, np.int32), np.empty(members + 1, np.int32)
    nodes[0], parent[0], last = publisher, 0, 1
    for place in range(members):
        first[place] = last
        node = nodes[place]
        for at in range(offsets[node], offsets[node + 1]):
            nodes[last], parent[last] = children[at], place
            last += 1
    first[members] = last
    return nodes, parent, first


@compiled
def _joined(parent: NDArray[np.int32], told: NDArray[np.int32]) -> NDArray[np.int32]:
    hops = told.copy()
    for place in range(len(parent) - 1, 0, -1):
        if hops[place] < NEVER:
            hops[parent[place]] = min(hops[parent[place]], hops[place] + 1)
    hops[0] = 0
    for place in range(1, len(parent)):
        if hops[place] == NEVER:
            hops[place] = hops[parent[place]] + 1
    return hops


NEVER: Final = 2**31 - 1
