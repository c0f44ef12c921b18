"""Draws that are a function of what is drawn for: a keyed hash of (purpose, node, choice), never stored.

The machines draw every lasting choice so (`mesh/habits.py`), and so does the model: an order of neighbours that is kept
for life is one key for all epochs, an order that is new in each is a key for each. Nothing depends on who was drawn for
before, so an epoch can be had without those before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.chance import stream
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
    """64 bits: splitmix64's finaliser, once for each word."""
    return _mixed(_mixed(_mixed(_mixed(key, purpose), node), about), choice)


@compiled
def unit(word: np.uint64) -> float:
    """Where between 0 and 1 these bits lie."""
    return float((word >> _11) * _2_TO_MINUS_53)


@compiled
def _mixed(word: np.uint64, more: int) -> np.uint64:
    mixed = (word ^ np.uint64(more)) + _GOLDEN
    mixed = (mixed ^ (mixed >> _30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _27)) * _MIX_2
    return mixed ^ (mixed >> _31)


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
        chosen[node] = unit(drawn(key, purpose, node, about, 0)) < share
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
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_11: Final = np.uint64(11)
_27: Final = np.uint64(27)
_30: Final = np.uint64(30)
_31: Final = np.uint64(31)
_2_TO_MINUS_53: Final = 2.0**-53
