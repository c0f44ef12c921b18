"""Ranges and values of one attribute as a server sees them: sets of tags of prefixes, each in any order.

Values come by a bell whose middle is not the domain's, as most that are measured do; ranges have any middle, and are
up to a share of the domain wide. What a range and a value are made of is said by the network's own covers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.rng import stream
from veilcast.lab.models.server_log import Numbers
from veilcast.topics.dyadic import cover_range, prefixes_of


class PrefixTags(NamedTuple):
    asked: Numbers
    """Publications x prefixes: tags, in any order."""
    ranges: tuple[Numbers, ...]
    """By subscription, its tags."""
    value: NDArray[np.int64]
    """Of each publication. The truth."""


def draw_prefix_tags(bits: int, publications: int, ranges: int, widest: float, seed: int) -> PrefixTags:
    rng = np.random.default_rng(stream(seed, "prefixes"))
    size = 1 << bits
    tag = rng.permutation(2 * size).astype(np.int64)
    value = np.clip(rng.normal(0.4, 0.2, publications) * size, 0, size - 1).astype(np.int64)
    asked = np.array([[_node(level, prefix) for level, prefix in prefixes_of(int(one), bits)] for one in value])
    sets = []
    for _ in range(ranges):
        low = int(rng.integers(size))
        high = min(size - 1, low + int(rng.integers(max(1, round(widest * size)))))
        sets.append(tag[[_node(level, prefix) for level, prefix in cover_range(low, high, bits)]])
    return PrefixTags(rng.permuted(tag[asked], axis=1), tuple(sets), value)


def _node(level: int, prefix: int) -> int:
    """All prefixes in one row: the root is 1, and below n are 2n and 2n + 1."""
    return (1 << level) + prefix
