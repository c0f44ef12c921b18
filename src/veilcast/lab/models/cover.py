"""Probabilistic forwarding (P0 4.6): nodes of a mesh recruit neighbours outside it, which are covers from then on.

Every node of the mesh but the publisher has a turn: first the members in random order, then the covers in the order of
their recruitment, so that a branch of covers can grow. By the rule "one", which fits the numbers of P0, a node tosses
one coin and recruits one random neighbour outside the mesh. By the rule "each", the letter of P0's text, it tosses a
coin for each of them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.mesh import MeshTree
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import Stream, draw_below, draw_unit, shuffle, stream


def add_covers(graph: Graph, mesh: MeshTree, mu: float, seed: int, rule: Literal["one", "each"] = "one") -> MeshTree:
    """The mesh with its covers; `mesh` is not changed."""
    if not 0 <= mu <= 1:
        raise ConfigError(f"mu must be a probability, not {mu}")
    inside = mesh.members[mesh.members != mesh.publisher]
    grow = _one_each if rule == "one" else _each_by_itself
    parent = grow(graph.offsets, graph.targets, mesh.parent, inside, mu, stream(seed, "cover"))
    return MeshTree(mesh.publisher, parent, mesh.distance)


@jit
def _one_each(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    before: NDArray[np.int32],
    inside: NDArray[np.int32],
    mu: float,
    state: Stream,
) -> NDArray[np.int32]:
    parent = before.copy()
    queue = _in_turn(inside, len(before), state)
    head, tail = 0, len(inside)
    while head < tail:
        v = queue[head]
        head += 1
        if draw_unit(state) >= mu:
            continue
        chosen, outside = np.int32(-1), 0
        for at in range(offsets[v], offsets[v + 1]):
            if parent[targets[at]] < 0:
                outside += 1
                if draw_below(state, outside) == 0:
                    chosen = targets[at]
        if chosen >= 0:
            parent[chosen] = v
            queue[tail] = chosen
            tail += 1
    return parent


@jit
def _each_by_itself(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    before: NDArray[np.int32],
    inside: NDArray[np.int32],
    mu: float,
    state: Stream,
) -> NDArray[np.int32]:
    parent = before.copy()
    queue = _in_turn(inside, len(before), state)
    head, tail = 0, len(inside)
    while head < tail:
        v = queue[head]
        head += 1
        for at in range(offsets[v], offsets[v + 1]):
            if parent[targets[at]] < 0 and draw_unit(state) < mu:
                parent[targets[at]] = v
                queue[tail] = targets[at]
                tail += 1
    return parent


@jit
def _in_turn(inside: NDArray[np.int32], n: int, state: Stream) -> NDArray[np.int32]:
    """A queue with room for all nodes, which begins with the members in random order."""
    queue = np.empty(n, np.int32)
    queue[: len(inside)] = inside
    shuffle(state, queue[: len(inside)])
    return queue
