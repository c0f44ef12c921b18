"""Restructurings: who is in every mesh of a topic, however it is laid, is there for its own sake.

Another publisher, new ties or a few nodes that are away make another mesh. Forwarders change with it, and readers stay;
the shell game cannot help, for it only moves about who is there. Rows of `members` are meshes as sets V_a; `asked`
says of whom a mesh tells anything: not of who is away, nor of the publisher, who is in it in any case.

`frequency` counts. `likelihood` asks in addition how much a node was needed (`closure.needed`): to be there without
being needed says more than to be there where all ways meet. Each mesh adds the logarithm of

    P(in it | reads) / P(in it | does not) = 1 / (q + (1 - q) c)

with c the chance that somebody whom nobody needs is there all the same, as a cover. A reader who is there is never left
out, so to be missing once weighs as much as to be certain. And a reader has shortest ways, so against covers it is best
to be shown what `closure.supported` leaves of a mesh. Covers that are drawn anew fall back by themselves. Those who
stay the same come back with whom they cover, as readers do, and only where they have no shortest way are they told.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Masks = NDArray[np.bool_]


def frequency(members: Masks, asked: Masks) -> NDArray[np.float64]:
    """By node, in what share of the meshes it was, by the rule of succession: one of one is less than ten of ten."""
    share: NDArray[np.float64] = (np.sum(members & asked, axis=0) + 1) / (np.sum(asked, axis=0) + 2)
    return share


def likelihood(members: Masks, asked: Masks, needed: NDArray[np.float64], covers: float = 0.0) -> NDArray[np.float64]:
    """By node, the logarithm of how much likelier it is to have been seen so as a reader than as another.

    `needed` has, for each mesh and node, the chance q that it is there for others' sake.
    """
    chance = np.maximum(needed + (1 - needed) * covers, _DOUBT)
    told = np.where(members, -np.log(chance), np.log(_DOUBT))
    total: NDArray[np.float64] = np.sum(told, axis=0, where=asked)
    return total


_DOUBT: Final = 1e-6
"""No observation is surer than this: one may be mistaken."""
