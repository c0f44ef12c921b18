"""The leaf rule (P0 2.3): who receives a topic's notes and passes none on reads them; why else would it be there.

A global observer sees notes travel, and so isolates the mesh: one link from `src[i]` to `dst[i]` for each copy of a
publication. Without a defence every leaf of the mesh is a subscriber by construction, for a path is laid for a
subscriber and ends at it; only subscribers that others have the topic through are missed. Probabilistic forwarding
hangs forwarders below subscribers, and the shell game moves subscribers away from the leaves.

Nodes are numbers below `nodes`. Who sends without receiving is the publisher, and is no leaf.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray


def leaves(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it is named."""
    return present(dst, nodes) & ~present(src, nodes)


def members(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it was seen with the topic's notes: the set V_a, as the observer has it."""
    return present(dst, nodes) | present(src, nodes)


def scores(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int) -> NDArray[np.float64]:
    """By node, how much it looks like a subscriber: a leaf more than one that passes on, and that more than one that
    has nothing to do with it. Who only sends is the publisher."""
    received = present(dst, nodes)
    return np.where(received & ~present(src, nodes), _LEAF, np.where(received, _INNER, _OUTSIDE))


def present(ends: NDArray[np.int32], nodes: int) -> NDArray[np.bool_]:
    """By node, whether it is among these."""
    mask = np.zeros(nodes, dtype=np.bool_)
    mask[ends] = True
    return mask


_LEAF: Final = 1.0
_INNER: Final = 0.5
_OUTSIDE: Final = 0.0
