"""Draws as a keyed hash of (purpose, node, choice), which are never stored.

The machines make every lasting choice so (`mesh/sticky_choices.py`), and so does the model. An order of neighbours that
is kept for life is one key for all epochs; an order for each epoch is a key for each. No draw depends on earlier draws,
so an epoch can be computed without those before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import GOLDEN, mix_bits, stream, to_fraction


def derive_key(seed: int, *names: str | int) -> np.uint64:
    """The key of these names under this seed."""
    return np.uint64(stream(seed, *names)[0])


def rank_neighbours(graph: Graph, key: np.uint64, purpose: int) -> NDArray[np.uint64]:
    """An order of the neighbours of every node, as a number for each of `graph.targets`: smaller numbers first."""
    return _rank_neighbours(graph.offsets, graph.targets, key, purpose)


def draw_share(key: np.uint64, purpose: int, nodes: int, about: int, share: float) -> NDArray[np.bool_]:
    """A mask of the nodes that belong to this share."""
    return _draw_share(key, purpose, nodes, about, share)


@jit
def draw_bits(key: np.uint64, purpose: int, node: int, about: int, choice: int) -> np.uint64:
    """64 bits of these numbers under this key."""
    bits = mix_bits((key ^ np.uint64(purpose)) + GOLDEN)
    bits = mix_bits((bits ^ np.uint64(node)) + GOLDEN)
    bits = mix_bits((bits ^ np.uint64(about)) + GOLDEN)
    return mix_bits((bits ^ np.uint64(choice)) + GOLDEN)


@jit
def _rank_neighbours(
    offsets: NDArray[np.int64], targets: NDArray[np.int32], key: np.uint64, purpose: int
) -> NDArray[np.uint64]:
    order = np.empty(targets.size, np.uint64)
    for node in range(offsets.size - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            order[slot] = draw_bits(key, purpose, node, targets[slot], 0)
    return order


@jit
def _draw_share(key: np.uint64, purpose: int, nodes: int, about: int, share: float) -> NDArray[np.bool_]:
    chosen = np.empty(nodes, np.bool_)
    for node in range(nodes):
        chosen[node] = to_fraction(draw_bits(key, purpose, node, about, 0)) < share
    return chosen


PARENTS: Final = 1
STEMS: Final = 2
RELAYS: Final = 3
COINS: Final = 4
LIVES: Final = 5
COVERS: Final = 6
LOTS: Final = 7
AWAY: Final = 8
RECRUITS: Final = 9
TURNS: Final = 10
BEATS: Final = 11
DEPARTURES: Final = 12
HOLDS: Final = 13
WRITES: Final = 14
"""The purposes of draws."""
