"""The hardened mesh as its machines build it (`mesh/{sticky_choices,batch_join,roots,stem}.py`), without time.

1. Every node has a parent towards the root: of its neighbours that are nearer to the root, the first in an order that
   it keeps for life.
2. The mesh contains the nodes that ask for themselves (readers, the publisher, and covers, which act as readers for
   life), and all nodes on their paths to the root.
3. A publisher's notification goes by a stem to the root and from there down the mesh. The first relay is one neighbour,
   the same for life. Each relay chooses the next by an order and a coin that depend on the previous node. From the
   stem's end the notification climbs the parents to the root.
4. The root's acknowledgement returns by the same relays, without the loops of the stem.

One thing is left out: a node that asks while a flood still finds nearer paths keeps a parent that is one hop further.
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
    """The path of every node to the root."""

    root: int
    parent: NDArray[np.int32]
    """The root is its own parent; -1 for nodes that no flood reaches."""
    distance: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class StemWalk:
    """The path of a notification from its publisher to the root."""

    path: NDArray[np.int32]
    """The nodes of the path, from the publisher to the root."""
    climb_start: int
    """The place in the path from which on it climbs."""
    ack_links: int
    """Number of links that the acknowledgement takes."""


@dataclass(frozen=True, eq=False)
class DeliveryCost:
    """The cost of one notification, as `tests/support/hardened_costs.py` measures it on the machines."""

    messages: int
    """Messages, with those of the stem and of the acknowledgement."""
    mesh_links: int
    hops: float
    """Mean hops from the publisher to a reached subscriber."""
    reached_share: float
    """The share of present subscribers that receive it."""


def find_root_paths(graph: Graph, root: int, order: NDArray[np.uint64]) -> RootPaths:
    """`order` ranks the neighbours of each node (`keyed_draws.rank_neighbours`): one order for life, or one for each
    flood."""
    distance = build_mesh(graph, root, np.empty(0, np.int32), 0).distance
    parent = _parents(graph.offsets, graph.targets, order, distance)
    parent[root] = root
    return RootPaths(root, parent, distance)


def form_mesh(found: RootPaths, asking: NDArray[np.bool_]) -> MeshTree:
    """The mesh of the asking nodes, and of all nodes on their paths."""
    return MeshTree(found.root, _form_mesh(found.parent, found.root, asking), found.distance)


def draw_covers(nodes: int, kappa: float, key: np.uint64, epoch: int, life: int) -> NDArray[np.bool_]:
    """The nodes that act as readers in this epoch although they are not: a share kappa.

    In every epoch one node in `life` draws again: 1 is a draw for each epoch, 0 one for all epochs.
    """
    return _draw_covers(nodes, kappa, key, epoch, life)


def elect_root(present: NDArray[np.bool_], key: np.uint64) -> int:
    """The root: the present node with the best lot."""
    return int(_elect_root(present, key))


def walk_stem(
    known: Graph, there: Graph, found: RootPaths, publisher: int, onward: float, key: np.uint64, relay: int = 0
) -> StemWalk | None:
    """The stem of one notification; None while the publisher's first relay, among all neighbours that it knows, is away
    or has no path.

    `there` is the graph of present nodes. `relay` counts the publisher's first relays, from 0.
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
    """`subscribers` are those that are present."""
    depth = mesh_depths(mesh)
    got = subscribers[depth[subscribers] >= 0]
    sent, notes = way.path.size - 1, mesh.members.size - 1
    hops = sent + float(depth[got].mean()) if got.size else 0.0
    return DeliveryCost(notes + sent + way.ack_links, notes, hops, got.size / max(1, subscribers.size))


def mesh_depths(mesh: MeshTree) -> NDArray[np.int32]:
    """Links of the mesh between each node and the root; -1 outside the mesh."""
    return _mesh_depths(mesh.parent, mesh.publisher)


@jit
def _parents(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], order: NDArray[np.uint64], distance: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The first nearer neighbour of every node but the root."""
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
    """The first neighbour in the order that depends on the previous node of a cargo; never that node."""
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
    came = np.full(nodes, -1, np.int32)  # Links from the publisher to each node's first visit, without loops.
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
    # A cargo that returns to a relay ends its stem here; the answer takes the path of the first visit.
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


ONWARD_PROBABILITY: Final = 0.5
"""The probability that a relay forwards a stem, as `onward` in the mesh's configuration."""
