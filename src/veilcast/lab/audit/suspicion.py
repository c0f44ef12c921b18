"""How sure an attacker may be of a suspect, without knowing the truth: does it suspect the same one again?

The record is cut into parts, and the attack is made on each by itself. If scores meant nothing, a node would stand
among the first x of all in one part as in another by chance alone. Of m parts, the chance to be among the first x in
all of them but one at most is

    m x^(m-1) - (m-1) x^m

and as there are many nodes, one of which might be lucky, it is multiplied by their number. One less this is the
confidence. One part may be missed, for readers come and go, and notes are lost; parts in which all look alike say
nothing, and do not count.

It is confidence in that a node stands out, and keeps doing so. Whether that is for its role only the truth can tell:
who takes the middle of a mesh for its publisher does so again, as long as the mesh is the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray


def confidence(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """By node; `parts` has a row of scores for each part of the record."""
    telling = parts[parts.min(axis=1) < parts.max(axis=1)]
    count, nodes = telling.shape
    if count < _PARTS_MIN:
        return np.zeros(nodes)
    # In each part, the share of nodes that are as suspect or more; of these over all parts the last but one.
    first = np.array([np.mean(scores >= scores[:, None], axis=1) for scores in telling])
    x = np.sort(first, axis=0)[-2]
    by_chance = count * x ** (count - 1) - (count - 1) * x**count
    found: NDArray[np.float64] = np.maximum(0.0, 1 - nodes * by_chance)
    return found


_PARTS_MIN: Final = 3
