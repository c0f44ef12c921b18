"""Epochs of a mesh: the nodes that are away, a new flood from the origin, a new tree, and the nodes that ask for the
topic.

Fifty epochs may give away what one epoch hides: what stays the same stands out from what changes. So a defence is
described by what it keeps over epochs and what it draws again (`MeshPolicy`). An epoch is a function of the population,
the policy and its number. Only relays that stay for one more epoch make an epoch depend on the one before.

Insiders are always present, forward like other nodes, and neither read nor cover. The publisher and the root are honest
and always present, unless a publisher that is not the origin is said to come and go. Every other node is away in an
epoch with probability `churn`, independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models import hardened_mesh, keyed_draws
from veilcast.lab.models.graph import Graph, restrict_graph
from veilcast.lab.models.hardened_mesh import RootPaths
from veilcast.lab.models.keyed_draws import derive_key, draw_bits
from veilcast.lab.models.mesh import MeshTree
from veilcast.lab.models.numba_cache import jit


@dataclass(frozen=True)
class MeshPolicy:
    """How a mesh is run, by what it keeps over epochs. The defaults are P0's baseline, BL."""

    origin: Literal["publisher", "elected", "fresh"] = "publisher"
    """Where the flood begins: at the publisher; at a root that is kept; or at another node in each epoch."""
    parents: Literal["fresh", "kept"] = "fresh"
    """Whether the choice among equally near parents is made in each epoch or for life."""
    timing: Literal["seen", "hidden"] = "seen"
    """Whether insiders see if a node answers an advert at once or after it was asked itself."""
    kappa: float = 0.0
    """The share of other nodes that ask as if they were readers (covers)."""
    life: int = 0
    """Mean number of epochs of a cover: 1 draws covers in each epoch; 0 once for all, as the machines do."""
    relays: Literal["leave", "stay"] = "leave"
    """Whether a forwarder also asks in the next epoch, needed or not."""
    mu: float = 0.0
    """Probabilistic forwarding, by the rule "one"."""
    recruits: Literal["fresh", "kept", "sole"] = "fresh"
    """Whether coins and the order of invitations are drawn in each epoch or for life. "sole": for life, and only the
    first neighbour is asked."""
    games: float = 0.0
    """Shell games in an epoch for each node of the mesh."""
    departures: int = 0
    """A publisher sends what it has once in this many epochs; 0 or 1: in every epoch."""
    hold: int = 0
    """Largest number of epochs that a root keeps a notification."""
    parcels: bool = False
    """Whether every member sends parcels over its stem, so that stems show nothing of a publication. The publisher, and
    not the root, then draws the epoch of its release."""
    notes: float = 1.0
    """Probability that the publisher writes a notification in an epoch in which it is present."""
    relay_epochs: int = 0
    """After this many epochs a publisher takes another first relay; 0: never."""

    def __post_init__(self) -> None:
        if not 0 <= self.kappa <= 1 or not 0 <= self.mu <= 1 or not 0 <= self.notes <= 1:
            raise ConfigError("kappa, mu and notes must be shares between 0 and 1")
        if min(self.life, self.games, self.departures, self.hold, self.relay_epochs) < 0:
            raise ConfigError("life, games, departures, hold and relay_epochs must not be negative")

    def relay_number(self, epoch: int) -> int:
        """Number of first relays that the publisher had before this epoch's."""
        return epoch // self.relay_epochs if self.relay_epochs else 0


@dataclass(frozen=True, eq=False)
class Population:
    """The nodes of a graph and their roles. The truth: no attacker receives it."""

    graph: Graph
    publisher: int
    subscribers: NDArray[np.int32]
    insiders: NDArray[np.bool_]
    churn: float
    seed: int
    steady: bool = True
    """Whether the publisher is always present, or away as often as others. The latter needs a flood that does not begin
    with it."""
    topic: int = 0
    """The number of this topic among several on the same graph. They share the absent nodes, and no other draw."""

    def key(self, *names: str | int) -> np.uint64:
        """The key of a draw that each topic makes for itself."""
        return derive_key(self.seed, *names, *((self.topic,) if self.topic else ()))


@dataclass(frozen=True, eq=False)
class Epoch:
    """One epoch, when its mesh is complete."""

    number: int
    present: NDArray[np.bool_]
    graph: Graph
    """The links of present nodes; absent nodes have no neighbours in it."""
    root_paths: RootPaths
    asking: NDArray[np.bool_]
    """The nodes that asked for themselves, readers or covers."""
    mesh: MeshTree
    """The mesh as subscriptions made it, before covers were recruited and nodes changed places."""
    covered_mesh: MeshTree
    """The mesh with recruited covers; equal to `mesh` without covers."""
    invited: NDArray[np.int8]
    """For every slot of `graph`, whether that node invited that neighbour: 0, ACCEPTED or REFUSED."""


def settle_population(
    graph: Graph,
    publisher: int,
    subscribers: NDArray[np.int32],
    insiders: float,
    churn: float,
    seed: int,
    *,
    steady: bool = True,
) -> Population:
    """Insiders are a share of all nodes, drawn from those without a role."""
    idle = np.ones(graph.nodes, np.bool_)
    idle[publisher] = idle[subscribers] = False
    many = round(insiders * graph.nodes)
    if many > np.count_nonzero(idle):
        raise ConfigError(f"there are no {many} nodes left for insiders; fewer of them, or a smaller ratio")
    chosen = np.zeros(graph.nodes, np.bool_)
    chosen[
        _shuffle_nodes(np.flatnonzero(idle).astype(np.int32), derive_key(seed, "insiders"), keyed_draws.LOTS)[:many]
    ] = True
    return Population(graph, publisher, subscribers, chosen, churn, seed, steady)


def run_epochs(people: Population, conduct: MeshPolicy, count: int) -> Iterator[Epoch]:
    """The first `count` epochs."""
    life, honest = people.key("life"), ~people.insiders
    root = people.publisher if conduct.origin == "publisher" else hardened_mesh.elect_root(honest, life)
    relayed = np.zeros(people.graph.nodes, np.bool_)
    for number in range(count):
        once = people.key("epoch", number)
        if conduct.origin == "fresh":
            root = hardened_mesh.elect_root(honest, once)
        everybody = derive_key(people.seed, "epoch", number)
        present = ~keyed_draws.draw_share(everybody, keyed_draws.AWAY, people.graph.nodes, 0, people.churn)
        present |= people.insiders
        present[people.publisher] |= people.steady or conduct.origin != "elected"
        present[root] = True
        graph = restrict_graph(people.graph, present)
        order = keyed_draws.rank_neighbours(graph, life if conduct.parents == "kept" else once, keyed_draws.PARENTS)
        found = hardened_mesh.find_root_paths(graph, root, order)
        asking = hardened_mesh.draw_covers(graph.nodes, conduct.kappa, life, number, conduct.life) & honest
        asking[people.subscribers] = True
        asking[people.publisher] |= conduct.kappa > 0  # It holds a grant, and every holder of a grant asks.
        if conduct.relays == "stay":
            asking |= relayed
        asking &= present
        mesh = hardened_mesh.form_mesh(found, asking)
        covered, invited = _recruit_covers(graph, mesh, conduct, once if conduct.recruits == "fresh" else life, once)
        relayed = find_forwarders(mesh)
        yield Epoch(number, present, graph, found, asking, mesh, covered, invited)


def find_forwarders(mesh: MeshTree) -> NDArray[np.bool_]:
    """The nodes that have a child in the mesh."""
    inner = np.zeros(mesh.parent.size, np.bool_)
    members = mesh.members
    inner[mesh.parent[members[members != mesh.publisher]]] = True
    return inner


def _recruit_covers(
    graph: Graph, mesh: MeshTree, conduct: MeshPolicy, key: np.uint64, once: np.uint64
) -> tuple[MeshTree, NDArray[np.int8]]:
    """Probabilistic forwarding as the machines do it (`mesh/cover.py`), with every invitation. The statistics of
    `models.cover` need no invitations."""
    if conduct.mu == 0:
        return mesh, np.zeros(graph.targets.size, np.int8)
    coins = keyed_draws.draw_share(key, keyed_draws.COINS, graph.nodes, 0, conduct.mu)
    order = keyed_draws.rank_neighbours(graph, key, keyed_draws.RECRUITS)
    members = mesh.members
    turns = _shuffle_nodes(members[members != mesh.publisher], once, keyed_draws.TURNS)
    tries = 1 if conduct.recruits == "sole" else graph.nodes
    parent, invited = _recruit(graph.offsets, graph.targets, mesh.parent, order, coins, turns, tries)
    return MeshTree(mesh.publisher, parent, mesh.distance), invited


def _shuffle_nodes(nodes: NDArray[np.int32], key: np.uint64, purpose: int) -> NDArray[np.int32]:
    """These nodes in a random order."""
    return nodes[np.argsort(_lots(nodes, key, purpose), kind="stable")]


@jit
def _lots(nodes: NDArray[np.int32], key: np.uint64, purpose: int) -> NDArray[np.uint64]:
    lots = np.empty(nodes.size, np.uint64)
    for place in range(nodes.size):
        lots[place] = draw_bits(key, purpose, nodes[place], 0, 0)
    return lots


@jit
def _recruit(
    offsets: NDArray[np.int64],
    targets: NDArray[np.int32],
    before: NDArray[np.int32],
    order: NDArray[np.uint64],
    coins: NDArray[np.bool_],
    turns: NDArray[np.int32],
    tries: int,
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """A node whose coin says so invites its neighbours in order, except those next to it in the mesh, until one
    accepts."""
    parent, invited = before.copy(), np.zeros(targets.size, np.int8)
    queue = np.empty(parent.size, np.int32)
    queue[: turns.size] = turns
    first, last = 0, turns.size
    while first < last:
        node = queue[first]
        first += 1
        if not coins[node]:
            continue
        slots = offsets[node] + np.argsort(order[offsets[node] : offsets[node + 1]])
        for slot in slots[:tries]:
            other = targets[slot]
            if parent[node] == other or parent[other] == node:
                continue
            if parent[other] >= 0:
                invited[slot] = REFUSED
            else:
                invited[slot], parent[other], queue[last] = ACCEPTED, node, other
                last += 1
                break
    return parent, invited


ACCEPTED: Final = 1
REFUSED: Final = 2

MESH_POLICIES: Final = {
    "BL": MeshPolicy(),
    "BL hidden": MeshPolicy(timing="hidden"),
    "BL kept": MeshPolicy(timing="hidden", parents="kept"),
    "BL new publisher": MeshPolicy(origin="fresh"),
    "PF fresh": MeshPolicy(mu=0.6),
    "PF sole": MeshPolicy(mu=1.0, recruits="sole"),
    "SG": MeshPolicy(games=4.0),
    "SG few": MeshPolicy(games=0.25),
    "PFSG fresh": MeshPolicy(mu=0.6, games=4.0),
    "PFSG sole": MeshPolicy(mu=1.0, recruits="sole", games=4.0),
    "H": MeshPolicy(origin="elected", parents="kept", timing="hidden", kappa=0.78, relays="stay"),
}
"""The papers' meshes as insiders see them, and the hardened one."""
