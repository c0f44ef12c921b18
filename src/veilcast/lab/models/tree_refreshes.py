"""Trees that are drawn anew in every refresh, over the same subscribers and the same coalition, and what it sees.

In the paper's trees the subscriber is the root, and bundles go down the tree that they make: a node's is as long as
its branch is large. In hardened ones anybody is the root, and hands on to a chain of guards, which ends with the
subscriber:

    origin -> ... -> root -> guard 1 -> ... -> guard L -> subscriber

Guards are kept over refreshes, as long as they live, and are the same for all topics of a subscriber. A chain may also
go on behind the subscriber, who then stands anywhere on it but at the near end, and hands on like the others; the last
of it hands to somebody who throws it away. Bundles go to groups that have nothing to do with the tree, and have one
size.

Publications begin anywhere, so a node carries as large a share of them as its branch has of all nodes: that, no padding
hides.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models import tree
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import stream
from veilcast.lab.models.tree import SpanningTrees, parent_in, place_in
from veilcast.lab.models.tree_entries import Numbers, TreeEntries, join_entries

Mask = NDArray[np.bool_]


class TreePolicy(NamedTuple):
    """How trees are made."""

    profile: Literal["paper", "hardened"] = "hardened"
    depth: int = 3
    chain: int = 3
    """Guards, before the subscriber if there is no tail."""
    tail: int = 0
    """Above 0, so many more, and the subscriber is behind any of all of them."""
    kept: bool = True
    """Whether guards outlast a refresh."""
    turnover: float = 0.0
    """The share of guards that are gone by the next one, and replaced."""
    padded: bool = True


class TreeReaders(NamedTuple):
    """The truth: no attacker is handed one."""

    nodes: int
    insiders: Numbers
    readers: Numbers
    """By subscription, who reads."""
    topics: Numbers
    """And what."""
    seed: int

    @property
    def honest(self) -> Mask:
        found = np.ones(self.nodes, np.bool_)
        found[self.insiders] = False
        return found


def watch_refreshes(village: TreeReaders, habit: TreePolicy, refreshes: int, publications: int) -> TreeEntries:
    """What the coalition sees, with so many publications of each topic in a refresh."""
    if habit.profile == "hardened" and not 1 <= habit.chain + habit.tail < village.nodes:
        raise ConfigError("a hardened tree hangs by a chain of one guard at least, and of fewer than there are nodes")
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    branch = branch_sizes(village.nodes, tree.least_branching(village.nodes, habit.depth))
    chains = GuardChains(village, habit, rng)
    parts = []
    for refresh in range(refreshes):
        trees = _trees(village, habit, refresh)
        place, parent = _insider_places(trees, village.insiders)
        if habit.profile == "hardened":
            if refresh:
                chains.renew()
            # Whoever stands at the root has the near end of the chain for a parent.
            parent = np.where(place == 0, chains.chains[:, :1], parent)
            parts.append(chains.entries(refresh, publications))
        parts.append(_entries(village, habit, refresh, place, parent, branch, publications, rng))
    return join_entries(parts)


def branch_sizes(nodes: int, branching: int) -> Numbers:
    """By place, how many nodes its branch has, itself included."""
    size: Numbers = _branches(nodes, branching)
    return size


class PublicationPaths(NamedTuple):
    """Of publications to a subscriber in one tree."""

    runs: Numbers
    """How many insiders in a row each begins with, the origin being one."""
    last: Numbers
    """Who comes after them, the subscriber at the latest."""
    owned: float
    """The share of which the coalition had the whole path."""


def trace_paths(village: TreeReaders, habit: TreePolicy, publications: int) -> PublicationPaths:
    """To the first subscriber, in its first tree."""
    first = village._replace(readers=village.readers[:1], topics=village.topics[:1])
    above = tree.all_parents(_trees(first, habit, 0))[:, 0]
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    way = GuardChains(first, habit, rng).first_chain()
    runs, last, owned = np.empty(publications, np.int64), np.empty(publications, np.int64), 0
    for number, origin in enumerate(tree.draw_origins(village.nodes, publications, village.seed).tolist()):
        climbed = [origin]
        while above[climbed[-1]] >= 0:
            climbed.append(int(above[climbed[-1]]))
        nodes = np.array([*climbed, *way], np.int64)
        honest = np.flatnonzero(village.honest[nodes])
        runs[number], last[number] = honest[0], nodes[honest[0]]
        owned += 0 < honest[0] == nodes.size - 1
    return PublicationPaths(runs, last, owned / publications)


class GuardChains:
    """The guards of each subscriber, in the order in which they are passed, with the subscriber among them."""

    def __init__(self, village: TreeReaders, habit: TreePolicy, rng: np.random.Generator) -> None:
        self._village, self._habit, self._rng = village, habit, rng
        self._people, self._whose = np.unique(village.readers, return_inverse=True)
        length = (habit.chain + habit.tail) if habit.profile == "hardened" else 0
        # One more than there are guards, for the subscriber; and one to whom the last hands what nobody wants.
        self._ways = np.empty((self._people.size, length + 1 + (habit.tail > 0)), np.int64)
        self._stands = np.empty(self._people.size, np.int64)
        self._draw()

    @property
    def chains(self) -> Numbers:
        """By subscription."""
        return self._ways[self._whose]

    def first_chain(self) -> list[int]:
        """The guards of the first subscriber, and itself; nobody but it, where there is no chain. In the paper's trees
        it is the root already."""
        if self._habit.profile == "paper":
            return []
        return [int(each) for each in self._ways[0, : self._stands[0] + 1]]

    def renew(self) -> None:
        """From one refresh to the next."""
        if not self._habit.kept:
            self._draw()
            return
        gone = self._rng.random(self._ways.shape) < self._habit.turnover
        gone[np.arange(len(gone)), self._stands] = False
        for person, place in np.argwhere(gone):
            others = np.setdiff1d(np.arange(self._village.nodes), self._ways[person])
            self._ways[person, place] = self._rng.choice(others)

    def entries(self, refresh: int, publications: int) -> TreeEntries:
        """What guards of the coalition were told, each in a bundle of its own."""
        enemy = ~self._village.honest
        subscription, place = np.nonzero(enemy[self.chains[:, :-1]])
        way = self.chains
        return TreeEntries(
            refresh=np.full(place.size, refresh, np.int64),
            observer=way[subscription, place],
            parent=way[subscription, place + 1],
            topic=self._village.topics[subscription],
            size=np.full(place.size, INSTALL if self._habit.padded else LAYER, np.int64),
            forwarded=np.full(place.size, publications, np.int64),
            hops_behind_root=place + 1,
        )

    def _draw(self) -> None:
        """The guards of everybody, none twice on a chain, and where the subscriber stands."""
        places = self._ways.shape[1]
        for number, person in enumerate(self._people.tolist()):
            drawn = self._rng.permutation(self._village.nodes)[: places + 1]
            drawn = drawn[drawn != person][: places - 1]
            last = self._habit.chain + self._habit.tail
            stands = int(self._rng.integers(1, last + 1)) if self._habit.tail else places - 1
            self._ways[number] = np.insert(drawn, stands, person)
            self._stands[number] = stands


def _trees(village: TreeReaders, habit: TreePolicy, refresh: int) -> SpanningTrees:
    names = ("refresh", refresh)
    if habit.profile == "paper":
        return tree.subscriber_rooted(village.nodes, habit.depth, village.readers, village.seed, *names)
    return tree.randomly_rooted(village.nodes, habit.depth, village.readers.size, village.seed, *names)


def _entries(
    village: TreeReaders,
    habit: TreePolicy,
    refresh: int,
    place: Numbers,
    parent: Numbers,
    branch: Numbers,
    publications: int,
    rng: np.random.Generator,
) -> TreeEntries:
    """What those of the coalition were told as the ordinary nodes that they are: subscriptions x insiders, but for who
    subscribes itself and stands at the root."""
    told = parent >= 0
    below = branch[place][told]
    if habit.profile == "paper":
        size = below * LAYER
    elif habit.padded:
        size = np.full(below.size, INSTALL, np.int64)
    else:
        group = branch_sizes(GROUP, FAN)
        size = group[rng.integers(GROUP, size=below.size)] * LAYER
    return TreeEntries(
        refresh=np.full(below.size, refresh, np.int64),
        observer=np.broadcast_to(village.insiders, told.shape)[told],
        parent=parent[told],
        topic=np.broadcast_to(village.topics[:, None], told.shape)[told],
        size=size,
        forwarded=rng.binomial(publications, below / village.nodes),
        hops_behind_root=np.where(place[told] == 0, 0, -1),
    )


@jit
def _insider_places(trees: SpanningTrees, insiders: Numbers) -> tuple[Numbers, Numbers]:
    """Trees x insiders: where each stands, and whom it hands on to."""
    place = np.empty((trees.turn.size, insiders.size), np.int64)
    parent = np.empty_like(place)
    for number in range(trees.turn.size):
        for at in range(insiders.size):
            place[number, at] = place_in(trees, number, insiders[at])
            parent[number, at] = parent_in(trees, number, insiders[at])
    return place, parent


@jit
def _branches(nodes: int, branching: int) -> Numbers:
    size = np.ones(nodes, np.int64)
    for place in range(nodes - 1, 0, -1):
        size[(place - 1) // branching] += size[place]
    return size


LAYER: Final = 115
"""Bytes of one instruction in a bundle, with what closes it."""
INSTALL: Final = 4096
GROUP: Final = 32
FAN: Final = 4
