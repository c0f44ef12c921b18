"""Places in a tree as a keyed permutation, without a list: the twin of `tree.permutation` that compiled models can
call.

A keyed permutation of n things is a Feistel network over pairs (left, right), each half about the root of n, repeated
until the result is below n. Each round adds to one half an entry of a table, selected by the other half. So a tree of n
nodes is a few short tables, and a path takes as many calls as it has hops, for any n. Here tables are drawn, and four
rounds are enough for statistics. From the same tables come the same places as from the real nodes' function; a test
compares them.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import stream


class TreePermutations(NamedTuple):
    """The permutations of several trees over the same nodes."""

    nodes: int
    left: int
    right: int
    """Number of values of each half."""
    tables: NDArray[np.int64]
    """Trees x rounds x the number to add for each value of the other half; even rounds change the left half."""


def draw_permutations(nodes: int, trees: int, seed: int, *names: str | int) -> TreePermutations:
    """Permutations of this number of trees, under this name."""
    left, right = halves(nodes)
    rng = np.random.default_rng(stream(seed, "places of trees", *names))
    tables = rng.integers(np.array([left, right] * (ROUNDS // 2))[:, None], size=(trees, ROUNDS, left))
    return TreePermutations(nodes, left, right, tables)


def halves(nodes: int) -> tuple[int, int]:
    left = isqrt(nodes - 1) + 1
    return left, -(-nodes // left)


@jit
def place_of(places: TreePermutations, tree: int, node: int) -> int:
    """The place of this node."""
    table, at = places.tables[tree], node
    while True:
        left, right = at // places.right, at % places.right
        for number in range(0, len(table), 2):
            left = (left + table[number, right]) % places.left
            right = (right + table[number + 1, left]) % places.right
        at = left * places.right + right
        if at < places.nodes:
            return at


@jit
def node_at(places: TreePermutations, tree: int, place: int) -> int:
    """The node at this place."""
    table, at = places.tables[tree], place
    while True:
        left, right = at // places.right, at % places.right
        for number in range(len(table) - 2, -1, -2):
            right = (right - table[number + 1, left]) % places.right
            left = (left - table[number, right]) % places.left
        at = left * places.right + right
        if at < places.nodes:
            return at


ROUNDS: Final = 4
