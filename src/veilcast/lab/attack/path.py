"""Whole paths: what a coalition makes of publications that it held from their origin on (P2 4.2).

P2 grants that a subscriber is found by whoever owns every node from the origin to it, and claims that nothing less
will do. An origin knows that it is one, and neighbours of one coalition recognise what they hand to each other; so they
know how many of them a publication passed in a row, and who got it next. If trees are so many hops deep, and all of
these were theirs, the next is the subscriber; the fewer they were, the less likely.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def scores(runs: Numbers, last: Numbers, nodes: int) -> NDArray[np.float64]:
    """By node, the longest row of insiders, from an origin on, that it came after."""
    longest = np.zeros(nodes)
    np.maximum.at(longest, last, runs)
    return longest
