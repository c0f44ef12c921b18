"""Draws that are a function of what is drawn for: a keyed hash of (purpose, node, choice), never stored.

The machines draw every lasting choice so (`mesh/habits.py`), and so does the model: an order of neighbours that is kept
for life is one key for all epochs, an order that is new in each is a key for each. Nothing depends on who was drawn for
before, so an epoch can be had without those before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.chance import GOLDEN, fraction, mixed, stream
from veilcast.lab.kernels.compiled import compiled
from veilcast.lab.kernels.graph import Graph


def key_of(seed: int, *names: str | int) -> np.uint64:
    """A key that belongs to these names under this seed."""
    return np.uint64(stream(seed, *names)[0])


def ranks(graph: Graph, key: np.uint64, purpose: int) -> NDArray[np.uint64]:
    """For every node an order of its neighbours, as a number for each of `graph.targets`: the smaller, the rather."""
    return _ranks(graph.offsets, graph.targets, key, purpose)


def happens(key: np.uint64, purpose: int, nodes: int, about: int, share: float) -> NDArray[np.bool_]:
    """For every node whether it is one of this share."""
    return _happens(key, purpose, nodes, about, share)


@compiled
def drawn(key: np.uint64, purpose: int, node: int, about: int, choice: int) -> np.uint64:
    """64 bits that belong to these numbers under this key."""
    bits = mixed((key ^ np.uint64(purpose)) + GOLDEN)
    bits = mixed((bits ^ np.uint64(node)) + GOLDEN)
    bits = mixed((bits ^ np.uint64(about)) + GOLDEN)
    return mixed((bits ^ np.uint64(choice)) + GOLDEN)


@compiled
def _ranks(offsets: NDArray[np.int64], targets: NDArray[np.int32], key: np.uint64, purpose: int) -> NDArray[np.uint64]:
    order = np.empty(targets.size, np.uint64)
    for node in range(offsets.size - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            order[slot] = drawn(key, purpose, node, targets[slot], 0)
    return order


@compiled
def _happens(key: np.uint64, purpose: int, nodes: int, about: int, share: float) -> NDArray[np.bool_]:
    chosen = np.empty(nodes, np.bool_)
    for node in range(nodes):
        chosen[node] = fraction(drawn(key, purpose, node, about, 0)) < share
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
"""What is drawn for."""
