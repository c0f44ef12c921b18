"""The majority rule (P0 2.3): where subscribers dominate a mesh, whoever is in it is named.

P0 grants the observer the number of subscribers. If they and the publisher are more than half of the mesh, to name
everybody in it is right more often than not, whatever its shape; then no shell game helps, and only covers do. Below
that, the shape is all there is, and the leaf rule is used. P0 describes this rule, and none of its curves shows it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.leaf import leaves, members, present


def named(src: NDArray[np.int32], dst: NDArray[np.int32], nodes: int, subscribers: int) -> NDArray[np.bool_]:
    """By node, whether it is named by an observer who knows how many subscribe."""
    size = int(np.count_nonzero(members(src, dst, nodes)))
    publishers = 1 if size else 0
    if 2 * (subscribers + publishers) > size:
        return present(dst, nodes)
    return leaves(src, dst, nodes)
