"""Persistence (P0 2.3, 5): what is there in every publication is there for a reader's sake.

Where covers are drawn anew for each publication, they come and go, and the mesh below them stays. Two observers draw on
that. One keeps the links that carried every publication so far, and applies the leaf rule to what is left: the covers
fall away, and soon the baseline stands bare. The other keeps only nodes: it names those that were there every time and
passed nothing on at least once, for a cover of a leaf is not drawn every time. It learns more slowly, and its curve
looks like P0's ("an increase with every publication").

The shell game, which moves the same nodes about, defeats the first; nobody is a leaf at the same place twice. It helps
the second: every member is a leaf now and then.


The leaf rule (P0 2.3): who receives a topic's notes and passes none on reads them; why else would it be there.

A global observer sees notes travel, and so isolates the mesh: one link from `src[i]` to `dst[i]` for each copy of a
publication. Without a defence every leaf of the mesh is a subscriber by construction, for a path is laid for a
subscriber and ends at it; only subscribers that others have the topic through are missed. Probabilistic forwarding
hangs forwarders below subscribers, and the shell game moves subscribers away from the leaves.

Nodes are numbers below `nodes`. Who sends without receiving is the publisher, and is no leaf.


The majority rule (P0 2.3): where subscribers dominate a mesh, whoever is in it is named.

P0 grants the observer the number of subscribers. If they and the publisher are more than half of the mesh, to name
everybody in it is right more often than not, whatever its shape; then no shell game helps, and only covers do. Below
that, the shape is all there is, and the leaf rule is used. P0 describes this rule, and none of its curves shows it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray


def find_leaves(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it is named."""
    return mask_of(dst, nodes) & ~mask_of(src, nodes)


def find_members(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it was seen with the topic's notes: the set V_a, as the observer has it."""
    return mask_of(dst, nodes) | mask_of(src, nodes)


def score_leaf_rule(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.float64]:
    """By node, how much it looks like a subscriber: a leaf more than one that passes on, and that more than one that
    has nothing to do with it. Who only sends is the publisher."""
    received = mask_of(dst, nodes)
    return np.where(received & ~mask_of(src, nodes), _LEAF, np.where(received, _INNER, _OUTSIDE))


def mask_of(ends: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it is among these."""
    mask = np.zeros(nodes, dtype=np.bool_)
    mask[ends] = True
    return mask


_LEAF: Final = 1.0
_INNER: Final = 0.5
_OUTSIDE: Final = 0.0


def name_majority(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int, subscribers: int) -> NDArray[np.bool_]:
    """By node, whether it is named by an observer who knows how many subscribe."""
    size = int(np.count_nonzero(find_members(src, dst, nodes)))
    publishers = 1 if size else 0
    if 2 * (subscribers + publishers) > size:
        return mask_of(dst, nodes)
    return find_leaves(src, dst, nodes)


class PersistentObserver:
    """What both observers know after the publications they have been shown, in turn."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._links: NDArray[np.int64] | None = None
        self._always = np.ones(nodes, dtype=np.bool_)
        self._once_leaf = np.zeros(nodes, dtype=np.bool_)

    def observe(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> None:
        """One more publication."""
        links = np.unique(src.astype(np.int64) * self._nodes + dst)
        self._links = links if self._links is None else np.intersect1d(self._links, links, assume_unique=True)
        self._always &= mask_of(dst, self._nodes)
        self._once_leaf |= find_leaves(src, dst, self._nodes)

    def name_by_links(self) -> NDArray[np.bool_]:
        """Leaves of the links that carried every publication."""
        links = np.empty(0, dtype=np.int64) if self._links is None else self._links
        src, dst = np.divmod(links, self._nodes)
        return find_leaves(src.astype(np.int32), dst.astype(np.int32), self._nodes)

    def name_by_nodes(self) -> NDArray[np.bool_]:
        """Those who received every publication, and were a leaf in one of them."""
        return self._always & self._once_leaf
