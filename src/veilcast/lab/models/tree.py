"""Spanning trees of P2 (section 4.2) as arrays: messages of a publication, and the load of the busiest node.

Every subscriber has a tree over all n nodes, and every node knows its parent in each. A publication begins at an origin
and climbs. Its cost depends on the routing:

- *trees*: an entry belongs to one tree, so a copy climbs one path for each subscriber. Copies that leave a node for the
  same next one at the same hop can be joined (`messages`), or sent separately (`copies`);
- *seen*: entries are by topic alone, so a node forwards to all of its parents, in whatever tree a copy came; each node
  does so once, because it remembers what it has seen;
- *labels*, as in P2: the same, but a node remembers nothing. A copy carries the labels of the nodes that it passed,
  which ends cycles, and nothing else: every simple path of the union of all trees is walked. Labels in a Bloom
  filter end some paths too early.

Places are rotated so that a subscriber stands at the root, as in the real trees. Parents of all nodes in all trees are
stored only for the routings that use them repeatedly.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.permutation import TreePermutations, draw_permutations, node_at, place_of
from veilcast.lab.models.rng import Stream, draw_below, stream

Nodes = NDArray[np.int64]


class SpanningTrees(NamedTuple):
    places: TreePermutations
    branching: int
    turn: Nodes
    """The rotation of the places of each tree."""


class TreeCost(NamedTuple):
    """Costs of publications."""

    messages: float
    """Mean messages of a publication, if copies for the same next node at the same hop are joined."""
    copies: float
    """Mean messages if each copy is sent separately."""
    hops: float
    """Mean hops to a subscriber."""
    sent: Nodes
    """Messages that each node sent in all."""


def least_branching(nodes: int, depth: int) -> int:
    """The least branching with which a tree of this depth holds all nodes."""
    if nodes < 2 or depth < 1:
        raise ConfigError("a tree has two nodes at least, and a depth of one")
    least = 1
    while sum(least**level for level in range(depth + 1)) < nodes:
        least += 1
    return least


def subscriber_rooted(nodes: int, depth: int, roots: Nodes, seed: int, *names: str | int) -> SpanningTrees:
    """The paper's trees: each has its subscriber at the root."""
    hung_up = randomly_rooted(nodes, depth, roots.size, seed, *names)
    return hung_up._replace(turn=_places_of(hung_up.places, roots))


def randomly_rooted(nodes: int, depth: int, trees: int, seed: int, *names: str | int) -> SpanningTrees:
    """Hardened trees: a random node stands at the root."""
    return SpanningTrees(
        draw_permutations(nodes, trees, seed, *names), least_branching(nodes, depth), np.zeros(trees, np.int64)
    )


def draw_nodes(nodes: int, count: int, seed: int, *names: str | int) -> Nodes:
    """Different random nodes."""
    if not 1 <= count <= nodes:
        raise ConfigError(f"of {nodes} nodes one is taken at least, and at most all, not {count}")
    return np.random.default_rng(stream(seed, *names)).permutation(nodes)[:count].astype(np.int64)


def draw_origins(nodes: int, publications: int, seed: int) -> Nodes:
    """Random origins, as publishers draw them."""
    return np.random.default_rng(stream(seed, "origins")).integers(nodes, size=publications)


def climb_trees(trees: SpanningTrees, origin: Nodes) -> TreeCost:
    """Routing by trees, up to their roots."""
    sent = np.zeros(trees.places.nodes, np.int64)
    messages, copies = _climb_trees(trees, origin, sent)
    each = copies / origin.size
    return TreeCost(messages / origin.size, each, each / trees.turn.size, sent)


def all_parents(trees: SpanningTrees) -> Nodes:
    """Nodes x trees; -1 at the root."""
    above: Nodes = _parents(trees)
    return above


def count_flood(above: Nodes, origin: int) -> int:
    """Messages with routing by topic alone, with a memory, over all parents (nodes x trees)."""
    return int(_count_flood(above, origin))


def count_wander(above: Nodes, origin: int, most: int, bits: int, seed: int) -> int:
    """Messages with routing by topic alone, with labels; or `most` if they are no fewer. A label is four positions in a
    header of `bits` bits; with 0 bits, labels are exact."""
    return int(_count_wander(above, origin, most, _labels(len(above), bits, stream(seed, "labels"))))


@jit
def place_in(trees: SpanningTrees, tree: int, node: int) -> int:
    """The place of this node."""
    return (place_of(trees.places, tree, node) - trees.turn[tree]) % trees.places.nodes  # type: ignore[no-any-return]


@jit
def node_in(trees: SpanningTrees, tree: int, place: int) -> int:
    """The node at this place."""
    return node_at(trees.places, tree, (place + trees.turn[tree]) % trees.places.nodes)


@jit
def parent_in(trees: SpanningTrees, tree: int, node: int) -> int:
    """The node that this node forwards to; -1 at the root."""
    place = place_in(trees, tree, node)
    return node_in(trees, tree, (place - 1) // trees.branching) if place else -1


@jit
def _places_of(places: TreePermutations, nodes: Nodes) -> Nodes:
    found = np.empty(nodes.size, np.int64)
    for tree in range(nodes.size):
        found[tree] = place_of(places, tree, nodes[tree])
    return found


@jit
def _climb_trees(trees: SpanningTrees, origin: Nodes, sent: Nodes) -> tuple[int, int]:
    n, messages, copies = trees.places.nodes, 0, 0
    here, step = np.empty(trees.turn.size, np.int64), np.empty(trees.turn.size, np.int64)
    for start in origin:
        here[:] = start
        going = 1
        while going:
            going = 0
            for tree in range(here.size):
                if here[tree] >= 0:
                    above = parent_in(trees, tree, here[tree])
                    if above >= 0:
                        step[going] = here[tree] * n + above
                        going += 1
                    here[tree] = above
            copies += going
            step[:going].sort()
            for number in range(going):
                if number == 0 or step[number] != step[number - 1]:
                    messages += 1
                    sent[step[number] // n] += 1
    return messages, copies


@jit
def _parents(trees: SpanningTrees) -> Nodes:
    above = np.empty((trees.places.nodes, trees.turn.size), np.int64)
    for tree in range(trees.turn.size):
        for node in range(len(above)):
            above[node, tree] = parent_in(trees, tree, node)
    return above


@jit
def _distinct(above: Nodes) -> tuple[Nodes, Nodes]:
    """The different parents of each node, and their number."""
    found, many = np.empty_like(above), np.zeros(len(above), np.int64)
    for node in range(len(above)):
        for each in above[node]:
            known = each < 0
            for number in range(many[node]):
                known = known or found[node, number] == each
            if not known:
                found[node, many[node]] = each
                many[node] += 1
    return found, many


@jit
def _count_flood(above: Nodes, origin: int) -> int:
    parents, many = _distinct(above)
    seen, queue = np.zeros(len(above), np.bool_), np.empty(len(above), np.int64)
    queue[0], seen[origin], head, tail, messages = origin, True, 0, 1, 0
    while head < tail:
        node = queue[head]
        head += 1
        messages += many[node]
        for parent in parents[node, : many[node]]:
            if not seen[parent]:
                seen[parent] = True
                queue[tail] = parent
                tail += 1
    return messages


@jit
def _labels(n: int, bits: int, state: Stream) -> Nodes:
    """The positions of each node's label; one position of its own if labels are exact."""
    label = np.empty((n, _POSITIONS), np.int64)
    for node in range(n):
        for number in range(_POSITIONS):
            label[node, number] = draw_below(state, bits) if bits else node
    return label


@jit
def _count_wander(above: Nodes, origin: int, most: int, label: Nodes) -> int:
    """Count all paths from the origin on which no node finds its label in the header, depth first. For the header of a
    path, each position has the number of its nodes that set it."""
    parents, many = _distinct(above)
    set_by = np.zeros(label.max() + 1, np.int64)
    path, turn = np.empty(len(above) + 1, np.int64), np.zeros(len(above) + 1, np.int64)
    following, depth, messages, passed = origin, -1, 0, False
    while True:
        if not passed:
            depth += 1
            path[depth], turn[depth] = following, 0
            for position in label[following]:
                set_by[position] += 1
        while depth >= 0 and turn[depth] == many[path[depth]]:
            for position in label[path[depth]]:
                set_by[position] -= 1
            depth -= 1
        if depth < 0 or messages == most:
            return messages
        following = parents[path[depth], turn[depth]]
        turn[depth] += 1
        messages += 1
        passed = True
        for position in label[following]:
            passed = passed and set_by[position] > 0


_POSITIONS: Final = 4
