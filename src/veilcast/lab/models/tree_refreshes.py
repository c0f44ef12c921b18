"""Trees that are drawn again in every refresh, over the same subscribers, and what a coalition sees of them.

In the paper's trees the subscriber is the root, and bundles go down the tree that they make: the length of a node's
bundle is that of its branch. In hardened trees the root is a random node, and forwards to a chain of guards, which ends
with the subscriber:

    origin -> ... -> root -> guard 1 -> ... -> guard L -> subscriber

Guards are kept over refreshes, as long as they live, and are the same for all topics of a subscriber. A chain can also
continue behind the subscriber. The subscriber then stands anywhere on it but at the near end, and forwards like the
others; the last node forwards to a node that drops it. Bundles go to groups that are independent of the tree, and have
one size.

Publications begin at random nodes, so a node carries the share of them that its branch has of all nodes. No padding
hides that. A publisher does not choose itself. For a control, publications begin at their publisher: then the nodes
above it carry all of them, and the others none.
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
    """Number of guards, before the subscriber if there is no tail."""
    tail: int = 0
    """Above 0, this many guards more, and the subscriber is behind any one of all guards."""
    kept: bool = True
    """Whether guards outlast a refresh."""
    turnover: float = 0.0
    """The share of guards that are replaced from one refresh to the next."""
    padded: bool = True


class TreeReaders(NamedTuple):
    """The truth: no attacker receives it."""

    nodes: int
    insiders: Numbers
    readers: Numbers
    """The reader of each subscription."""
    topics: Numbers
    """The topic of each subscription."""
    seed: int

    @property
    def honest(self) -> Mask:
        found = np.ones(self.nodes, np.bool_)
        found[self.insiders] = False
        return found


class Publisher(NamedTuple):
    """The one publisher of all topics. The truth."""

    node: int
    is_origin: bool = False
    """Whether publications begin at the publisher itself."""


def watch_refreshes(
    village: TreeReaders, habit: TreePolicy, refreshes: int, publications: int, publisher: Publisher | None = None
) -> TreeEntries:
    """The coalition's entries, with `publications` publications of each topic in a refresh; without a publisher, they
    begin at any node."""
    if habit.profile == "hardened" and not 1 <= habit.chain + habit.tail < village.nodes:
        raise ConfigError("a hardened tree hangs by a chain of one guard at least, and of fewer than there are nodes")
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    branch = branch_sizes(village.nodes, tree.least_branching(village.nodes, habit.depth))
    chains = GuardChains(village, habit, rng)
    parts = []
    for refresh in range(refreshes):
        trees = _trees(village, habit, refresh)
        place, parent = _insider_places(trees, village.insiders)
        share = branch[place] / village.nodes
        if publisher is not None:
            share = _carried(trees, place, branch, publisher)
        if habit.profile == "hardened":
            if refresh:
                chains.renew()
            # The parent of the root is the near end of the chain.
            parent = np.where(place == 0, chains.chains[:, :1], parent)
            parts.append(chains.entries(refresh, publications))
        parts.append(_entries(village, habit, refresh, place, parent, branch, publications, share, rng))
    return join_entries(parts)


def branch_sizes(nodes: int, branching: int) -> Numbers:
    """For each place, the number of nodes of its branch, itself included."""
    size: Numbers = _branches(nodes, branching)
    return size


class PublicationPaths(NamedTuple):
    """What insiders on the paths of publications to a subscriber saw, in one tree; a row for each of them on each
    path."""

    publication: Numbers
    hop: Numbers
    """0 at the origin."""
    observer: Numbers
    following: Numbers
    """The next node of the path."""
    owned: float
    """The share of publications whose whole path belongs to the coalition. The truth."""


def trace_paths(village: TreeReaders, habit: TreePolicy, publications: int) -> PublicationPaths:
    """Paths to the first subscriber, in its first tree."""
    first = village._replace(readers=village.readers[:1], topics=village.topics[:1])
    above = tree.all_parents(_trees(first, habit, 0))[:, 0]
    rng = np.random.default_rng(stream(village.seed, "refreshes"))
    way = GuardChains(first, habit, rng).first_chain()
    rows, owned, enemy = [np.empty((0, 4), np.int64)], 0, ~village.honest
    for number, origin in enumerate(tree.draw_origins(village.nodes, publications, village.seed).tolist()):
        climbed = [origin]
        while above[climbed[-1]] >= 0:
            climbed.append(int(above[climbed[-1]]))
        nodes = np.array([*climbed, *way], np.int64)
        hops = np.flatnonzero(enemy[nodes[:-1]])
        rows.append(np.column_stack([np.full(hops.size, number), hops, nodes[hops], nodes[hops + 1]]))
        owned += nodes.size > 1 and hops.size == nodes.size - 1
    publication, hop, observer, following = np.concatenate(rows).T
    return PublicationPaths(publication, hop, observer, following, owned / publications)


class GuardChains:
    """The guards of each subscriber, in the order of the path, with the subscriber among them."""

    def __init__(self, village: TreeReaders, habit: TreePolicy, rng: np.random.Generator) -> None:
        self._village, self._habit, self._rng = village, habit, rng
        self._people, self._whose = np.unique(village.readers, return_inverse=True)
        length = (habit.chain + habit.tail) if habit.profile == "hardened" else 0
        # One place more than guards, for the subscriber; and with a tail one for the node that drops everything.
        self._ways = np.empty((self._people.size, length + 1 + (habit.tail > 0)), np.int64)
        self._stands = np.empty(self._people.size, np.int64)
        self._draw()

    @property
    def chains(self) -> Numbers:
        """The chain of each subscription."""
        return self._ways[self._whose]

    def first_chain(self) -> list[int]:
        """The guards of the first subscriber, and the subscriber. Empty in the paper's trees, whose root is the
        subscriber."""
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
        """The entries of guards of the coalition, each from its own bundle."""
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
            tree=subscription,
        )

    def _draw(self) -> None:
        """Draw the guards of each subscriber, without repetition on a chain, and the place of the subscriber."""
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
    share: NDArray[np.float64],
    rng: np.random.Generator,
) -> TreeEntries:
    """The entries of insiders as ordinary nodes of the trees: subscriptions x insiders, without a subscriber that is
    its own root."""
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
        forwarded=rng.binomial(publications, share[told]),
        hops_behind_root=np.where(place[told] == 0, 0, -1),
        tree=np.broadcast_to(np.arange(len(told))[:, None], told.shape)[told],
    )


def _carried(trees: SpanningTrees, place: Numbers, branch: Numbers, publisher: Publisher) -> NDArray[np.float64]:
    """Trees x insiders: the share of publications that comes to each insider."""
    branching, nodes = trees.branching, branch.size
    own, _ = _insider_places(trees, np.array([publisher.node], np.int64))
    above = np.zeros(place.shape, np.bool_)
    while (own > 0).any():
        own = np.where(own > 0, (own - 1) // branching, -1)
        above |= place == own
    return above.astype(np.float64) if publisher.is_origin else (branch[place] - above) / (nodes - 1)


@jit
def _insider_places(trees: SpanningTrees, insiders: Numbers) -> tuple[Numbers, Numbers]:
    """Trees x insiders: the place of each, and the node that it forwards to."""
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
"""Bytes of one instruction in a bundle, with its seal."""
INSTALL: Final = 4096
GROUP: Final = 32
FAN: Final = 4
