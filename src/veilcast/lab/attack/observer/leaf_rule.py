"""Attacks on the shape of one mesh: the leaf rule, the majority rule, and persistent observers (P0 2.3, 5).

A global observer sees notifications travel, and so isolates the mesh: one link from `src[i]` to `dst[i]` for each copy
of a publication. Nodes are numbers below `nodes`. A node that sends without receiving is the publisher, and is no leaf.

Leaf rule: a node that receives a topic's notifications and forwards none is a subscriber. Without a defence every leaf
is a subscriber by construction: each path is built for a subscriber and ends at it. The rule misses only subscribers
that also forward. Probabilistic forwarding hangs forwarders below subscribers. The shell game moves subscribers away
from the leaves.

Majority rule: P0 grants the observer the number of subscribers. If the subscribers and the publisher are more than half
of the mesh, naming every member is right more often than not, whatever the shape. Then no shell game helps; only covers
do. Below that share the observer uses the leaf rule. P0 describes this rule, but none of its curves shows it.

Persistence: where covers are drawn again for each publication, covers come and go and the mesh below them stays. Two
observers use that:
- The first keeps the links that carried every publication so far, and applies the leaf rule to them. The covers drop
  out, and soon the baseline mesh is left.
- The second keeps nodes only. It names the nodes that received every publication and were a leaf at least once, because
  the cover of a leaf is not drawn every time. It learns more slowly, and its curve looks like P0's ("an increase with
  every publication").

The shell game moves the same nodes about. It defeats the first observer: no node is a leaf at the same place twice. It
helps the second one: every member is a leaf now and then.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray


def find_leaves(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """Mask of the nodes that the leaf rule names."""
    return mask_of(dst, nodes) & ~mask_of(src, nodes)


def find_members(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """Mask of the nodes seen with the topic's notifications: the set V_a, as the observer has it."""
    return mask_of(dst, nodes) | mask_of(src, nodes)


def score_leaf_rule(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.float64]:
    """Score each node: a leaf 1, a forwarder 0.5, all others 0. A node that only sends is the publisher and
    scores 0."""
    received = mask_of(dst, nodes)
    return np.where(received & ~mask_of(src, nodes), _LEAF, np.where(received, _INNER, _OUTSIDE))


def mask_of(ends: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """Mask of the nodes in `ends`."""
    mask = np.zeros(nodes, dtype=np.bool_)
    mask[ends] = True
    return mask


def name_majority(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int, subscribers: int) -> NDArray[np.bool_]:
    """Mask of the nodes that an observer names if it knows the number of subscribers."""
    size = int(np.count_nonzero(find_members(src, dst, nodes)))
    publishers = 1 if size else 0
    if 2 * (subscribers + publishers) > size:
        return mask_of(dst, nodes)
    return find_leaves(src, dst, nodes)


class PersistentObserver:
    """State of both persistent observers after the publications they were shown."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._links: NDArray[np.int64] | None = None
        self._always = np.ones(nodes, dtype=np.bool_)
        self._once_leaf = np.zeros(nodes, dtype=np.bool_)

    def observe(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> None:
        """Add one publication."""
        links = np.unique(src.astype(np.int64) * self._nodes + dst)
        self._links = links if self._links is None else np.intersect1d(self._links, links, assume_unique=True)
        self._always &= mask_of(dst, self._nodes)
        self._once_leaf |= find_leaves(src, dst, self._nodes)

    def name_by_links(self) -> NDArray[np.bool_]:
        """Mask of the leaves of those links that carried every publication."""
        links = np.empty(0, dtype=np.int64) if self._links is None else self._links
        src, dst = np.divmod(links, self._nodes)
        return find_leaves(src.astype(np.int32), dst.astype(np.int32), self._nodes)

    def name_by_nodes(self) -> NDArray[np.bool_]:
        """Mask of the nodes that received every publication and were a leaf in at least one."""
        return self._always & self._once_leaf


_LEAF: Final = 1.0
_INNER: Final = 0.5
_OUTSIDE: Final = 0.0
