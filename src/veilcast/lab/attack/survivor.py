"""Survivors: when readers leave, the mesh is pruned back to those who still need it, and who stays is told.

A forwarder that has nobody below it any more leaves too. So one who stays when all have left who could have hung on it
reads; and of those who leave together the outer end has read, and the others were there for its sake (`late_join`, read
backwards). Each pruning leaves fewer who could be needed, and so what closure says about those who are left is sharper
than what it said about the whole.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import closure, late_join
from veilcast.lab.kernels.graph import Graph


def scores(graph: Graph, looks: NDArray[np.bool_], distance: NDArray[np.int32], rate: float) -> NDArray[np.float64]:
    """By node, the probability that it read when first looked at. A row of `looks` is the mesh at one look; from one
    row to the next some have left, and nobody has come."""
    found = closure.posterior(graph, looks[-1], distance, rate)
    for earlier, later in pairwise(looks):
        left = earlier & ~later
        found[left] = late_join.scores(graph, later, earlier, distance, rate)[left]
    return found
