"""The models' run, written in a straightforward way: in plain Python, and with networkx.

A run is an overlay of Watts and Strogatz, roles, the mesh of shortest paths, covers by the rule "one", and the leaf
rule of P0's observer. Each peer returns the same two numbers, with the same distributions as the models'; the
benchmarks check that. Random numbers are Python's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from veilcast.sim.graphs import watts_strogatz


class Setting(NamedTuple):
    nodes: int = 500
    degree: int = 4
    rewire: float = 0.2
    ratio: float = 0.1
    mu: float = 0.6


class MeshOutcome(NamedTuple):
    overlay: int
    """|V_a|."""
    accuracy: float
    """Accuracy of the leaf rule, over V."""


@dataclass(frozen=True)
class PeerModel:
    """One implementation. The shell game is bare swaps on the mesh of a seed. Only the swaps are timed, so `game`
    returns a function that plays."""

    name: str
    run: Callable[[Setting, int], MeshOutcome]
    game: Callable[[Setting, int], Callable[[int], dict[int, int]]]


def plain_python() -> PeerModel:
    return PeerModel("plain Python", _plain_run, _plain_game)


def _plain_run(setting: Setting, seed: int) -> MeshOutcome:
    rng, known, publisher, subscribers, parent = _plain_mesh(setting, seed)
    queue = deque(rng.sample([node for node in parent if node != publisher], len(parent) - 1))
    while queue:
        node = queue.popleft()
        outside = [other for other in known[node] if other not in parent]
        if outside and rng.random() < setting.mu:
            cover = rng.choice(outside)
            parent[cover] = node
            queue.append(cover)
    leaves = set(parent) - set(parent.values())
    return MeshOutcome(len(parent), 1 - len(leaves ^ set(subscribers)) / setting.nodes)


def _plain_game(setting: Setting, seed: int) -> Callable[[int], dict[int, int]]:
    rng, _, publisher, _, parent = _plain_mesh(setting, seed)
    children: dict[int, list[int]] = {}
    for node, above in parent.items():
        if node != publisher:
            children.setdefault(above, []).append(node)
    inner = [node for node in children if node != publisher]
    occupant = {place: place for place in parent}

    def play(swaps: int) -> dict[int, int]:
        for _ in range(swaps):
            place = rng.choice(inner)
            child = rng.choice(children[place])
            occupant[place], occupant[child] = occupant[child], occupant[place]
        return occupant

    return play


def networkx() -> PeerModel | str:
    """The peer, or the reason why it is missing."""
    try:
        import networkx as nx
    except ImportError:
        return "networkx is not installed"

    def mesh_of(setting: Setting, seed: int) -> tuple[Random, Any, int, list[int], Any]:
        rng = Random(seed)
        graph = nx.watts_strogatz_graph(setting.nodes, setting.degree, setting.rewire, seed=seed)
        publisher, *subscribers = rng.sample(list(graph), round(setting.ratio * setting.nodes) + 1)
        nearer = nx.predecessor(graph, publisher)
        parent = _climb(nearer, publisher, subscribers, rng)
        tree = nx.DiGraph()
        tree.add_node(publisher)
        tree.add_edges_from((above, node) for node, above in parent.items() if node != publisher)
        return rng, graph, publisher, subscribers, tree

    def run(setting: Setting, seed: int) -> MeshOutcome:
        rng, graph, publisher, subscribers, tree = mesh_of(setting, seed)
        queue = deque(rng.sample([node for node in tree if node != publisher], len(tree) - 1))
        while queue:
            node = queue.popleft()
            outside = [other for other in graph.neighbors(node) if other not in tree]
            if outside and rng.random() < setting.mu:
                cover = rng.choice(outside)
                tree.add_edge(node, cover)
                queue.append(cover)
        leaves = {node for node in tree if tree.out_degree(node) == 0}
        return MeshOutcome(len(tree), 1 - len(leaves ^ set(subscribers)) / setting.nodes)

    def game(setting: Setting, seed: int) -> Callable[[int], dict[int, int]]:
        rng, _, publisher, _, tree = mesh_of(setting, seed)
        inner = [node for node in tree if tree.out_degree(node) > 0 and node != publisher]
        occupant = {place: place for place in tree}

        def play(swaps: int) -> dict[int, int]:
            for _ in range(swaps):
                place = rng.choice(inner)
                child = rng.choice(list(tree.successors(place)))
                occupant[place], occupant[child] = occupant[child], occupant[place]
            return occupant

        return play

    return PeerModel(f"networkx {nx.__version__}", run, game)


def _plain_mesh(setting: Setting, seed: int) -> tuple[Random, list[list[int]], int, list[int], dict[int, int]]:
    rng = Random(seed)
    known: list[list[int]] = [[] for _ in range(setting.nodes)]
    for u, v in watts_strogatz(setting.nodes, setting.degree, setting.rewire, rng):
        known[u].append(v)
        known[v].append(u)
    publisher, *subscribers = rng.sample(range(setting.nodes), round(setting.ratio * setting.nodes) + 1)
    distance, border = {publisher: 0}, deque([publisher])
    nearer: dict[int, list[int]] = {publisher: []}
    while border:
        node = border.popleft()
        for other in known[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                nearer[other] = []
                border.append(other)
            if distance[other] == distance[node] + 1:
                nearer[other].append(node)
    return rng, known, publisher, subscribers, _climb(nearer, publisher, subscribers, rng)


def _climb(nearer: dict[int, list[int]], publisher: int, subscribers: list[int], rng: Random) -> dict[int, int]:
    """The mesh, as the parent of each of its nodes; the publisher is its own parent."""
    parent = {publisher: publisher}
    for node in subscribers:
        while node in nearer and node not in parent:
            parent[node] = rng.choice(nearer[node])
            node = parent[node]
    return parent
