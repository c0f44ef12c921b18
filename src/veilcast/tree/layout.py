"""Layouts: one subscriber's tree over the nodes of a listing, as determined by its secret.

Pure. Nodes are numbered in the order of the listing. A keyed permutation assigns each node a place, and the place
determines its parent. So a subscriber stores a secret and the listing, and nothing for each node.

*Paper* (`PaperLayout`). The subscriber is the root, and the tree has one name, which all its nodes know.

*Hardened* (`HardenedLayout`). A tree hangs from a chain of guards. The far end of the chain is the parent of the root:

    any node -> ... -> root -> g_L -> ... -> g_1 -> subscriber

The subscriber also has an ordinary place in its own tree. A refresh redraws everything except the guards. So a node
that is often the parent of colluders is a guard, and only the guard next to the subscriber has the subscriber as a
parent. Each node has its own entry id, known to itself and its children. Two nodes that are not neighbours cannot tell
that they are in one tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.tree import tree_shape
from veilcast.tree.instruction_bundles import Instruction, NodeId
from veilcast.tree.permutation import Permutation
from veilcast.wire.geometry import ENTRY


def entry_id(secret: Secret, node: NodeId) -> bytes:
    """The entry id of a node in the tree of this secret."""
    return derive(secret, _ENTRY, node, size=ENTRY).reveal()


class PaperLayout:
    """The paper's layout: `root` is the number of the subscriber."""

    def __init__(self, secret: Secret, nodes: Sequence[NodeId], *, root: int, r: int) -> None:
        self.nodes: Final = nodes
        self.branching: Final = tree_shape.branching_factor(len(nodes), r)
        self.tree: Final = entry_id(secret, b"")
        self._places = _places(secret, len(nodes))
        self._first = self._places.place(root)

    def place(self, number: int) -> int:
        """Rotated so that the subscriber is at 0; a rotated random permutation is equally random."""
        return (self._places.place(number) - self._first) % len(self.nodes)

    def node_at(self, place: int) -> int:
        return self._places.node((place + self._first) % len(self.nodes))

    def instruction(self, number: int) -> Instruction:
        above = self.node_at(tree_shape.parent_place(self.place(number), self.branching))
        return Instruction(self.tree, self.nodes[above], self.tree)

    def path(self, number: int) -> tuple[NodeId, ...]:
        return tuple(
            self.nodes[self.node_at(place)]
            for place in tree_shape.path_to_root(self.place(number), self.branching)[:-1]
        )


class HardenedLayout:
    """The hardened layout: `guards` from the one next to the subscriber, `home`, to the far one."""

    def __init__(
        self, secret: Secret, nodes: Sequence[NodeId], *, home: NodeId, guards: Sequence[NodeId], r: int
    ) -> None:
        if not guards:
            raise LocalError("a tree needs at least one guard")
        self.nodes: Final = nodes
        self.guards: Final = tuple(guards)
        self.branching: Final = tree_shape.branching_factor(len(nodes), r)
        self.home_entry: Final = derive(secret, _CHAIN, b"\0", size=ENTRY).reveal()
        """A message that reaches the subscriber under this name has reached the end of its path."""
        self._secret = secret
        self._home = home
        self._places = _places(secret, len(nodes))

    def place(self, number: int) -> int:
        return self._places.place(number)

    def node_at(self, place: int) -> int:
        return self._places.node(place)

    def entry(self, number: int) -> bytes:
        return entry_id(self._secret, self.nodes[number])

    def instruction(self, number: int) -> Instruction:
        place = self.place(number)
        if not place:
            return Instruction(self.entry(number), self.guards[-1], self._link(len(self.guards)))
        above = self.node_at(tree_shape.parent_place(place, self.branching))
        return Instruction(self.entry(number), self.nodes[above], self.entry(above))

    def guard_instruction(self, link: int) -> Instruction:
        """The instruction of the guard at this link of the chain, 0 next to the subscriber; the guard also has one
        as a node."""
        parent = self.guards[link - 1] if link else self._home
        return Instruction(self._link(link + 1), parent, self._link(link))

    def path(self, number: int) -> tuple[NodeId, ...]:
        climbed = (
            self.nodes[self.node_at(place)] for place in tree_shape.path_to_root(self.place(number), self.branching)
        )
        return (*climbed, *reversed(self.guards))

    def groups(self, size: int) -> list[tuple[int, ...]]:
        """Groups of nodes that receive instructions together, drawn independently of their places: membership in a
        group says nothing about the tree."""
        order = Permutation(derive(self._secret, _GROUPS), len(self.nodes))
        numbers = order.nodes(np.arange(len(self.nodes))).tolist()
        return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size)]

    def _link(self, link: int) -> bytes:
        """The entry of a link of the chain: 0 is home, 1 the guard next to it."""
        return self.home_entry if not link else derive(self._secret, _CHAIN, bytes((link,)), size=ENTRY).reveal()


def _places(secret: Secret, n: int) -> Permutation:
    return Permutation(derive(secret, _PLACES), n)


_ENTRY: Final = b"vc/tree-entry"
_CHAIN: Final = b"vc/tree-chain"
_PLACES: Final = b"vc/tree-order"
_GROUPS: Final = b"vc/tree-groups"
