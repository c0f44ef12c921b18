"""Late join: who comes into a mesh that stands comes by itself, and shows its way.

A subscription goes from the reader up to the first member that it meets. So those who are in the mesh now and were not
before are that way, and its outer end reads. It is `closure` among the newcomers alone: each of them is there for its
own sake or for that of a newcomer below it, whatever those do who were there. One reader at a time is named with
certainty, unless it was a forwarder already and nothing is seen; many at once hide one another only where their ways
meet. The shell game is of no use, for it brings nobody in.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import closure
from veilcast.lab.kernels.graph import Graph

Mask = NDArray[np.bool_]


def scores(graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32], rate: float) -> NDArray[np.float64]:
    """By node, the probability that it came to read; 0 of who did not come. `distance` is that from the publisher."""
    came, needed = _newcomers(graph, before, after, distance)
    return np.where(came, closure.reads(needed, rate), 0.0)


def certain(graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32]) -> Mask:
    """By node, whether it came to read beyond doubt, if nobody covers."""
    came, needed = _newcomers(graph, before, after, distance)
    unneeded: Mask = needed == 0
    return came & unneeded


def _newcomers(
    graph: Graph, before: Mask, after: Mask, distance: NDArray[np.int32]
) -> tuple[Mask, NDArray[np.float64]]:
    """Who came, and by node the chance that one of them hangs on it."""
    inside = closure.supported(graph, after, distance)
    came = inside & ~before
    return came, closure.needed(graph, inside, distance, came)
