"""The trie: tags of prefixes hide values, and not which of them have which prefix, nor which lie side by side.

A publication asks for the tags of all prefixes of its value. Who sees these sets knows the trie: a tag that comes with
all publications that another comes with stands above it. That leaves open, at every fork, which side is the left one.
Subscriptions tell: the pieces of a range lie side by side, so a range that has a part of a branch, and something beyond
it, has that part of it that is next to what is beyond. From the root down, each fork is turned the way that most ranges
want it; only the first may be turned either way, so values are put in order up to mirroring. What values there are, and
how frequent, is often public; then the order is as good as the values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


def order(asked: Numbers, ranges: Sequence[Numbers]) -> NDArray[np.float64]:
    """By publication its place from left to right, or from right to left; those that cannot be told apart share one.

    `asked` has a row of tags for each publication, in any order; a range is the tags of its subscription.
    """
    tags, place, count = np.unique(asked, return_inverse=True, return_counts=True)
    place = place.reshape(asked.shape)
    # What is above comes at least as often; of two that always come together either may be above.
    paths = np.take_along_axis(place, np.lexsort((place, -count[place]), axis=1), axis=1)
    values, which = np.unique(paths, axis=0, return_inverse=True)
    inside = np.array([np.isin(tags[values], one).any(axis=1) for one in ranges]).reshape(len(ranges), len(values))
    left_to_right = _ordered(values, inside)
    rank = np.empty(len(values))
    rank[left_to_right] = np.arange(len(values))
    return rank[which.reshape(-1)]


def _ordered(values: Numbers, inside: Mask) -> list[int]:
    """Values from left to right: blocks of those that share a prefix, which fork until each holds one."""
    blocks = [np.arange(len(values))]
    for level in range(values.shape[1]):
        forked: list[Numbers] = []
        for number, block in enumerate(blocks):
            parts = [block[values[block, level] == tag] for tag in np.unique(values[block, level])]
            if len(parts) == 2 and _turned(inside, parts[0], parts[1], forked, blocks[number + 1 :]):
                parts.reverse()
            forked += parts
        blocks = forked
    return [int(value) for block in blocks for value in block]


def _turned(inside: Mask, left: Numbers, right: Numbers, before: list[Numbers], after: list[Numbers]) -> bool:
    """Whether more ranges want the right part to be the left one."""
    more = inside[:, left].mean(axis=1) - inside[:, right].mean(axis=1)
    return bool((more * (_reaches(inside, after) - _reaches(inside, before))).sum() > 0)


def _reaches(inside: Mask, blocks: list[Numbers]) -> NDArray[np.float64]:
    """By range, 1 where it has something of these."""
    reached = np.zeros(len(inside))
    for block in blocks:
        reached[inside[:, block].any(axis=1)] = 1.0
    return reached
