"""A plan: one subscriber's tree over the nodes of a listing, as far as its secret decides it.

Pure. Nodes are numbered by the listing's order; a keyed permutation gives each a place, and the place its parent. So a
subscriber keeps a secret and the listing, and nothing for each node.

*Paper* (`PaperLayout`). The subscriber stands at the root, and the tree has one name, which all its nodes know.

*Hardened* (`HardenedLayout`). A tree is hung up by a chain of guards, whose far end the root has for a parent:

    any node -> ... -> root -> g_L -> ... -> g_1 -> subscriber

The subscriber has its ordinary place in its own tree besides. A refresh draws everything anew but the guards, so who is
often a parent of colluders is a guard, and only of those next to it the subscriber. Each node has an entry id of its
own, known to itself and its children: two that are not neighbours have nothing to tell by that they are of one tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.tree import tree_shape
from veilcast.tree.instruction_bundles import Instruction, NodeId
from veilcast.tree.permutation import Permutation
from veilcast.wire.geometry import ENTRY


class TreeLayout(Protocol):
    """What is the same for both."""

    def instruction(self, number: int) -> Instruction:
        """What the node of this number is told: the name of its entry, and where what comes in there goes."""

    def path(self, number: int) -> tuple[NodeId, ...]:
        """Who passes on what enters at this node, itself first, the subscriber left out."""


def entry_id(secret: Secret, node: NodeId) -> bytes:
    """The name of a node's entry in the tree of this secret."""
    return derive(secret, _ENTRY, node, size=ENTRY).reveal()


class PaperLayout:
    """The paper's: `root` is the number of the subscriber."""

    def __init__(self, secret: Secret, nodes: Sequence[NodeId], *, root: int, r: int) -> None:
        self.nodes: Final = nodes
        self.branching: Final = tree_shape.branching_factor(len(nodes), r)
        self.tree: Final = entry_id(secret, b"")
        self._places = _places(secret, len(nodes))
        self._first = self._places.place(root)

    def place(self, number: int) -> int:
        """Turned so that the subscriber stands at 0; of a random permutation, what is turned is as random."""
        return (self._places.place(number) - self._first) % len(self.nodes)

    def node_at(self, place: int) -> int:
        return self._places.node((place + self._first) % len(self.nodes))

    def instruction(self, number: int) -> Instruction:
        up = self.node_at(tree_shape.parent_place(self.place(number), self.branching))
        return Instruction(self.tree, self.nodes[up], self.tree)

    def path(self, number: int) -> tuple[NodeId, ...]:
        return tuple(
            self.nodes[self.node_at(place)]
            for place in tree_shape.path_to_root(self.place(number), self.branching)[:-1]
        )


class HardenedLayout:
    """The hardened one: `guards` from the one next to the subscriber, `home`, to the far one."""

    def __init__(
        self, secret: Secret, nodes: Sequence[NodeId], *, home: NodeId, guards: Sequence[NodeId], r: int
    ) -> None:
        if not guards:
            raise LocalError("a tree hangs by at least one guard")
        self.nodes: Final = nodes
        self.guards: Final = tuple(guards)
        self.branching: Final = tree_shape.branching_factor(len(nodes), r)
        self.home_entry: Final = derive(secret, _CHAIN, b"\0", size=ENTRY).reveal()
        """What comes to the subscriber under this name has come all the way."""
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
        up = self.node_at(tree_shape.parent_place(place, self.branching))
        return Instruction(self.entry(number), self.nodes[up], self.entry(up))

    def guard_instruction(self, link: int) -> Instruction:
        """Of the guard at this place of the chain, 0 next to the subscriber; beside the one it has as a node."""
        parent = self.guards[link - 1] if link else self._home
        return Instruction(self._link(link + 1), parent, self._link(link))

    def path(self, number: int) -> tuple[NodeId, ...]:
        climbed = (
            self.nodes[self.node_at(place)] for place in tree_shape.path_to_root(self.place(number), self.branching)
        )
        return (*climbed, *reversed(self.guards))

    def groups(self, size: int) -> list[tuple[int, ...]]:
        """The nodes in groups to be told together, drawn apart from the places: who is with whom says nothing."""
        order = Permutation(derive(self._secret, _GROUPS), len(self.nodes))
        numbers = order.nodes(np.arange(len(self.nodes))).tolist()
        return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size)]

    def _link(self, link: int) -> bytes:
        """The entry of a place on the chain: 0 is home, 1 the guard next to it."""
        return self.home_entry if not link else derive(self._secret, _CHAIN, bytes((link,)), size=ENTRY).reveal()


def _places(secret: Secret, n: int) -> Permutation:
    return Permutation(derive(secret, _PLACES), n)


_ENTRY: Final = b"vc/tree-entry"
_CHAIN: Final = b"vc/tree-chain"
_PLACES: Final = b"vc/tree-order"
_GROUPS: Final = b"vc/tree-groups"
