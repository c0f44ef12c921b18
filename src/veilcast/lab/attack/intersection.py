"""Intersection and hitting sets: who could have been it every time, and which few could have been all of it.

Each round gives a set of candidates: the mesh of a publication, or all who sent something just before a note of the
topic came up. Who is sought was among them. One who takes part in every round is in all the sets, so they are
intersected, until nobody is left who was there by chance: with m sought among N that takes a number of rounds of the
order of m log N (O'Connor 2008). If in each round it was one of m, nobody need be in all the sets, but the m together
meet every one of them. They are a hitting set of size m; in time there is only one (Kesdogan and Pimenidis 2004).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Masks = NDArray[np.bool_]


def remaining(rounds: Masks) -> Masks:
    """By round and node, whether it was a candidate in all rounds up to this one."""
    left: Masks = np.logical_and.accumulate(rounds, axis=0)
    return left


def hitting_sets(rounds: Masks, size: int) -> list[tuple[int, ...]]:
    """The sets of at most `size` nodes of which each round has one, and that need all of theirs, in order."""
    # Small rounds first: they leave the least to choose from.
    order = rounds[np.argsort(np.count_nonzero(rounds, axis=1), kind="stable")]
    found: set[tuple[int, ...]] = set()
    open_ends: list[tuple[int, ...]] = [()]
    for _ in range(size + 1):
        longer: set[tuple[int, ...]] = set()
        for chosen in open_ends:
            hits = order[:, list(chosen)]
            missed = ~hits.any(axis=1)
            if not missed.any():
                # Everybody in it is the only one of it in some round; else fewer would do.
                if hits[np.count_nonzero(hits, axis=1) == 1].any(axis=0).all():
                    found.add(chosen)
            elif len(chosen) < size:
                longer.update(tuple(sorted((*chosen, int(node)))) for node in np.flatnonzero(order[missed.argmax()]))
            if len(longer) > _MOST:
                raise ConfigError(f"more than {_MOST} sets are to be tried; look for fewer, or in smaller rounds")
        open_ends = sorted(longer)
    return sorted(found)


def scores(rounds: Masks, size: int) -> NDArray[np.float64]:
    """By node, the share of the hitting sets that it is in."""
    sets = hitting_sets(rounds, size)
    counts = np.zeros(rounds.shape[1])
    for each in sets:
        counts[list(each)] += 1
    return counts / max(1, len(sets))


_MOST: Final = 100_000
"""Sets of one size, while they are being completed."""
