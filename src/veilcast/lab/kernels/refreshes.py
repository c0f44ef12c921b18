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
from veilcast.lab.kernels import tree
from veilcast.lab.kernels.chance import stream
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.entries import Entries, Numbers, joined
from veilcast.lab.kernels.tree import Trees, parent_in, place_in

Mask = NDArray[np.bool_]


class Habit(NamedTuple):
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


class Village(NamedTuple):
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


def watched(village: Village, habit: Habit, refreshes: int, publications: int) -> Entries:
    """What the coalition sees, with so many publications of each topic in a refresh."""
    if habit.profile == "hardened" and not 1 <= habit.chain + habit.tail < village.nodes:
        raise ConfigError("a hardened tree hangs by a chain of one guard at least, and of fewer than there are nodes")
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    branch = branches(village.nodes, tree.branching(village.nodes, habit.depth))
    chains = Chains(village, habit, rng)
    parts = []
    for refresh in range(refreshes):
        trees = _trees(village, habit, refresh)
        place, parent = _seen(trees, village.insiders)
        if habit.profile == "hardened":
            if refresh:
                chains.age()
            # Whoever stands at the root has the near end of the chain for a parent.
            parent = np.where(place == 0, chains.way[:, :1], parent)
            parts.append(chains.entries(refresh, publications))
        parts.append(_entries(village, habit, refresh, place, parent, branch, publications, rng))
    return joined(parts)


def branches(nodes: int, branching: int) -> Numbers:
    """By place, how many nodes its branch has, itself included."""
    size: Numbers = _branches(nodes, branching)
    return size


class Paths(NamedTuple):
    """Of publications to a subscriber in one tree."""

    runs: Numbers
    """How many insiders in a row each begins with, the origin being one."""
    last: Numbers
    """Who comes after them, the subscriber at the latest."""
    owned: float
    """The share of which the coalition had the whole path."""


def paths(village: Village, habit: Habit, publications: int) -> Paths:
    """To the first subscriber, in its first tree."""
    first = village._replace(readers=village.readers[:1], topics=village.topics[:1])
    above = tree.parents(_trees(first, habit, 0))[:, 0]
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    way = Chains(first, habit, rng).before()
    runs, last, owned = np.empty(publications, np.int64), np.empty(publications, np.int64), 0
    for number, origin in enumerate(tree.origins(village.nodes, publications, village.seed).tolist()):
        climbed = [origin]
        while above[climbed[-1]] >= 0:
            climbed.append(int(above[climbed[-1]]))
        nodes = np.array([*climbed, *way], np.int64)
        honest = np.flatnonzero(village.honest[nodes])
        runs[number], last[number] = honest[0], nodes[honest[0]]
        owned += 0 < honest[0] == nodes.size - 1
    return Paths(runs, last, owned / publications)


class Chains:
    """The guards of each subscriber, in the order in which they are passed, with the subscriber among them."""

    def __init__(self, village: Village, habit: Habit, rng: np.random.Generator) -> None:
        self._village, self._habit, self._rng = village, habit, rng
        self._people, self._whose = np.unique(village.readers, return_inverse=True)
        length = (habit.chain + habit.tail) if habit.profile == "hardened" else 0
        # One more than there are guards, for the subscriber; and one to whom the last hands what nobody wants.
        self._ways = np.empty((self._people.size, length + 1 + (habit.tail > 0)), np.int64)
        self._stands = np.empty(self._people.size, np.int64)
        self._draw()

    @property
    def way(self) -> Numbers:
        """By subscription."""
        return self._ways[self._whose]

    def before(self) -> list[int]:
        """The guards of the first subscriber, and itself; nobody but it, where there is no chain. In the paper's trees
        it is the root already."""
        if self._habit.profile == "paper":
            return []
        return [int(each) for each in self._ways[0, : self._stands[0] + 1]]

    def age(self) -> None:
        """From one refresh to the next."""
        if not self._habit.kept:
            self._draw()
            return
        gone = self._rng.random(self._ways.shape) < self._habit.turnover
        gone[np.arange(len(gone)), self._stands] = False
        for person, place in np.argwhere(gone):
            others = np.setdiff1d(np.arange(self._village.nodes), self._ways[person])
            self._ways[person, place] = self._rng.choice(others)

    def entries(self, refresh: int, publications: int) -> Entries:
        """What guards of the coalition were told, each in a bundle of its own."""
        enemy = ~self._village.honest
        subscription, place = np.nonzero(enemy[self.way[:, :-1]])
        way = self.way
        return Entries(
            refresh=np.full(place.size, refresh, np.int64),
            observer=way[subscription, place],
            parent=way[subscription, place + 1],
            topic=self._village.topics[subscription],
            size=np.full(place.size, INSTALL if self._habit.padded else LAYER, np.int64),
            carried=np.full(place.size, publications, np.int64),
            behind=place + 1,
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


def _trees(village: Village, habit: Habit, refresh: int) -> Trees:
    names = ("refresh", refresh)
    if habit.profile == "paper":
        return tree.rooted(village.nodes, habit.depth, village.readers, village.seed, *names)
    return tree.hung(village.nodes, habit.depth, village.readers.size, village.seed, *names)


def _entries(
    village: Village,
    habit: Habit,
    refresh: int,
    place: Numbers,
    parent: Numbers,
    branch: Numbers,
    publications: int,
    rng: np.random.Generator,
) -> Entries:
    """What those of the coalition were told as the ordinary nodes that they are: subscriptions x insiders, but for who
    subscribes itself and stands at the root."""
    told = parent >= 0
    below = branch[place][told]
    if habit.profile == "paper":
        size = below * LAYER
    elif habit.padded:
        size = np.full(below.size, INSTALL, np.int64)
    else:
        group = branches(GROUP, FAN)
        size = group[rng.integers(GROUP, size=below.size)] * LAYER
    return Entries(
        refresh=np.full(below.size, refresh, np.int64),
        observer=np.broadcast_to(village.insiders, told.shape)[told],
        parent=parent[told],
        topic=np.broadcast_to(village.topics[:, None], told.shape)[told],
        size=size,
        carried=rng.binomial(publications, below / village.nodes),
        behind=np.where(place[told] == 0, 0, -1),
    )


@compiled
def _seen(trees: Trees, insiders: Numbers) -> tuple[Numbers, Numbers]:
    """Trees x insiders: where each stands, and whom it hands on to."""
    place = np.empty((trees.turn.size, insiders.size), np.int64)
    parent = np.empty_like(place)
    for number in range(trees.turn.size):
        for at in range(insiders.size):
            place[number, at] = place_in(trees, number, insiders[at])
            parent[number, at] = parent_in(trees, number, insiders[at])
    return place, parent


@compiled
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
