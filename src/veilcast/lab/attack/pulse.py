"""The pulse of a node: how what it sent to all its peers in a short time was spaced, and how long it was.

Where cells are due on a grid of their own for each link, one gap says little. The gaps of all links of a node at once
say whether it was held up: their quantiles show a few that are late among many that are not, which means and spreads
blur. A classifier is shown these numbers and learns what matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Link: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""When cells left for one peer, in order, and how long each was."""


def links(
    src: NDArray[np.int32], dst: NDArray[np.int32], t_us: NDArray[np.int64], size: NDArray[np.int64]
) -> list[list[Link]]:
    """By node, what it sent over each of its links."""
    order = np.lexsort((t_us, dst, src))
    src, dst, t_us, size = src[order], dst[order], t_us[order], size[order]
    another = (np.diff(src) != 0) | (np.diff(dst) != 0)
    starts = [0, *(np.flatnonzero(another) + 1), len(src)]
    found: list[list[Link]] = [[] for _ in range(int(src.max(initial=-1)) + 1)]
    for first, last in pairwise(dict.fromkeys(starts)):
        found[src[first]].append((t_us[first:last], size[first:last]))
    return found


def pulse(sent: Sequence[Link], start_us: int, end_us: int) -> NDArray[np.float64] | None:
    """Of one node in this time; None where there is too little for any gap to be told."""
    gaps, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for t_us, size in sent:
        first, last = np.searchsorted(t_us, [start_us, end_us])
        gaps.append(np.diff(t_us[first:last]))
        sizes.append(size[first:last])
    gap, lengths = np.concatenate(gaps), np.concatenate(sizes)
    if len(gap) < 2:
        return None
    shares = np.quantile(gap, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])
    of_sizes = (lengths.mean(), lengths.std(), lengths.min(), lengths.max())
    return np.array([len(lengths), gap.mean(), gap.std(), *shares, *of_sizes])
