"""The hardened mesh as its machines build it (`mesh/{habits,joining,roots,stem}.py`), without time.

From the root every node has a way, its parent: of the neighbours that are nearer to the root, the first in an order
that it keeps for life. In the mesh are those who ask for their own sake (readers, and covers who act as readers), and
all on their ways. A publisher's note goes by a stem to the root and from there down the mesh: first to one neighbour,
the same for life; from relay to relay, by an order and a coin that depend on whom it came from; and from the stem's end
up the ways. The root's acknowledgement goes back by the same relays, past the loops that the stem has made.

What is left out: who asks in the moments while a flood still finds nearer ways keeps a parent that is a hop further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.keyed_draws import COINS, COVERS, LIVES, LOTS, RELAYS, STEMS, draw_bits
from veilcast.lab.models.mesh import MeshTree, build_mesh
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import to_fraction


@dataclass(frozen=True, eq=False)
class RootPaths:
    """Everybody's way to the root."""

    root: int
    parent: NDArray[np.int32]
    """The root is its own; -1 for whom no flood reaches."""
    distance: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class StemWalk:
    """The way of a note from its publisher to the root."""

    path: NDArray[np.int32]
    """Who had it in hand, from the publisher to the root."""
    climb_start: int
    """From which place in the path on it went up the ways."""
    ack_links: int
    """Over how many links the acknowledgement went."""


@dataclass(frozen=True, eq=False)
class DeliveryCost:
    """What one note costs, as `tests/support/hardened_costs.py` measures it with the machines."""

    messages: int
    """With those of the stem and of the acknowledgement."""
    mesh_links: int
    """Links of the mesh."""
    hops: float
    """From the publisher to a subscriber that is reached, on the average."""
    reached_share: float
    """The share of the subscribers who are there that get it."""


def find_root_paths(graph: Graph, root: int, order: NDArray[np.uint64]) -> RootPaths:
    """`order` ranks the neighbours of each node (`habits.ranks`): one for life, or for every flood a new one."""
    distance = build_mesh(graph, root, np.empty(0, np.int32), 0).distance
    parent = _parents(graph.offsets, graph.targets, order, distance)
    parent[root] = root
    return RootPaths(root, parent, distance)


def form_mesh(found: RootPaths, asking: NDArray[np.bool_]) -> MeshTree:
    """The mesh of those who ask for their own sake, and of all on their ways."""
    return MeshTree(found.root, _form_mesh(found.parent, found.root, asking), found.distance)


def draw_covers(nodes: int, kappa: float, key: np.uint64, epoch: int, life: int) -> NDArray[np.bool_]:
    """Who acts as a reader in this epoch, if it is none: a share kappa.

    With every epoch one in `life` begins a new life and draws anew: 1 is a draw for each epoch, 0 one for all.
    """
    return _draw_covers(nodes, kappa, key, epoch, life)


def elect_root(present: NDArray[np.bool_], key: np.uint64) -> int:
    """The root: of those who are there the one with the best lot."""
    return int(_elect_root(present, key))


def walk_stem(
    known: Graph, there: Graph, found: RootPaths, publisher: int, onward: float, key: np.uint64, relay: int = 0
) -> StemWalk | None:
    """Of one note; None while the publisher's first relay among all that it knows is not there, or has no way.

    `there` is the graph of those who are. `relay` counts the publisher's first relays, from 0.
    """
    path, climbs, back = _walk_stem(
        known.offsets,
        known.targets,
        there.offsets,
        there.targets,
        found.parent,
        found.root,
        publisher,
        onward,
        key,
        relay,
    )
    return StemWalk(path, int(climbs), int(back)) if path.size else None


def measure_cost(mesh: MeshTree, way: StemWalk, subscribers: NDArray[np.int32]) -> DeliveryCost:
    """`subscribers` are those who are there."""
    depth = mesh_depths(mesh)
    got = subscribers[depth[subscribers] >= 0]
    sent, notes = way.path.size - 1, mesh.members.size - 1
    hops = sent + float(depth[got].mean()) if got.size else 0.0
    return DeliveryCost(notes + sent + way.ack_links, notes, hops, got.size / max(1, subscribers.size))


def mesh_depths(mesh: MeshTree) -> NDArray[np.int32]:
    """How many links of the mesh below its root; -1 outside."""
    return _mesh_depths(mesh.parent, mesh.publisher)


@jit
def _parents(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], order: NDArray[np.uint64], distance: NDArray[np.int32]
) -> NDArray[np.int32]:
    """For everybody but the root the first of those who are nearer."""
    parent = np.full(distance.size, -1, np.int32)
    for node in range(distance.size):
        best = np.uint64(0)
        for slot in range(offsets[node], offsets[node + 1]):
            nearer = distance[node] > 0 and distance[targets[slot]] == distance[node] - 1
            if nearer and (parent[node] < 0 or order[slot] < best):
                parent[node], best = targets[slot], order[slot]
    return parent


@jit
def _form_mesh(parent: NDArray[np.int32], root: int, asking: NDArray[np.bool_]) -> NDArray[np.int32]:
    inside = np.full(parent.size, -1, np.int32)
    inside[root] = root
    for reader in range(parent.size):
        node = reader
        if asking[node] and parent[node] >= 0:
            while inside[node] < 0:
                inside[node] = parent[node]
                node = parent[node]
    return inside


@jit
def _draw_covers(nodes: int, kappa: float, key: np.uint64, epoch: int, life: int) -> NDArray[np.bool_]:
    chosen = np.empty(nodes, np.bool_)
    for node in range(nodes):
        born = epoch
        while born > 0 and to_fraction(draw_bits(key, LIVES, node, born, 0)) * life >= 1.0:
            born -= 1
        chosen[node] = to_fraction(draw_bits(key, COVERS, node, born if life > 0 else 0, 0)) < kappa
    return chosen


@jit
def _elect_root(present: NDArray[np.bool_], key: np.uint64) -> int:
    root, best = -1, np.uint64(0)
    for node in range(present.size):
        lot = draw_bits(key, LOTS, node, 0, 0)
        if present[node] and (root < 0 or lot < best):
            root, best = node, lot
    return root


@jit
def _first(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    key: np.uint64,
    purpose: int,
    node: int,
    source: int,
) -> int:
    """The neighbour that comes first in the order which depends on whom a cargo came from; never that one."""
    first, best = -1, np.uint64(0)
    for slot in range(offsets[node], offsets[node + 1]):
        near = targets[slot]
        rank = draw_bits(key, purpose, node, source, near)
        if near != source and (first < 0 or rank < best):
            first, best = near, rank
    return first


@jit
def _walk_stem(
    known_offsets: NDArray[np.int64],
    known_targets: NDArray[np.int32],
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    parent: NDArray[np.int32],
    root: int,
    publisher: int,
    onward: float,
    key: np.uint64,
    relay: int,
) -> tuple[NDArray[np.int32], int, int]:
    nodes = offsets.size - 1
    path = np.empty(2 * nodes + 2, np.int32)
    came = np.full(nodes, -1, np.int32)  # At how many links from the publisher each has it first, loops cut off.
    here = _first(known_offsets, known_targets, key, STEMS, publisher, -1 - relay)
    if here < 0 or parent[here] < 0:
        return path[:0], 0, 0
    path[0], path[1], source = publisher, here, publisher
    came[publisher] = 0
    size, back = 2, 1
    while came[here] < 0:
        came[here] = back
        if to_fraction(draw_bits(key, COINS, here, source, 0)) >= onward:
            break
        after = _first(offsets, targets, key, RELAYS, here, source)
        if after < 0:
            break
        here, source = after, here
        path[size] = here
        size, back = size + 1, back + 1
    # What comes back ends here, and is answered where it came from first.
    climbs, back = size - 1, came[here]
    while here != root:
        here = parent[here]
        path[size] = here
        size, back = size + 1, back + 1
        if came[here] >= 0:
            back = min(back, came[here])
    return path[:size].copy(), climbs, back


@jit
def _mesh_depths(parent: NDArray[np.int32], root: int) -> NDArray[np.int32]:
    depth = np.full(parent.size, -1, np.int32)
    trail = np.empty(parent.size, np.int32)
    depth[root] = 0
    for member in range(parent.size):
        node, size = member, 0
        while parent[node] >= 0 and depth[node] < 0:
            trail[size] = node
            node, size = parent[node], size + 1
        for place in range(size - 1, -1, -1):
            depth[trail[place]] = depth[parent[trail[place]]] + 1
    return depth


COVER_LIFE: Final = 200
"""The mean life of a cover in epochs, as `mesh.habits.LIFE`."""
ONWARD_PROBABILITY: Final = 0.5
"""The probability that a relay passes a stem on, as `mesh.config.Hardening.onward`."""
