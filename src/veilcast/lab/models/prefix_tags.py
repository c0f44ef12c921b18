"""Ranges and values of one attribute as a server sees them: sets of tags of prefixes, each in random order.

Values have a bell-shaped distribution whose centre is not that of the domain, as most measured quantities do. Ranges
have a random centre, and a width up to a share of the domain. The network's own covers give the prefixes of a range and
of a value.
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
    """Publications x prefixes: tags, in random order."""
    ranges: tuple[Numbers, ...]
    """The tags of each subscription."""
    value: NDArray[np.int64]
    """The value of each publication. The truth."""


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
    """The number of a prefix: the root is 1, and the children of n are 2n and 2n + 1."""
    return (1 << level) + prefix
