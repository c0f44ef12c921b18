"""Who stands where in a tree, without a list of it: the twin of `tree.permutation` that kernels can call.

A keyed permutation of n things: a Feistel network over pairs (left, right), each half about the root of n, walked on
until it ends below n. Each round adds to one half what a table has for the other. So a tree of n nodes is a few short
tables, and a path as many calls as it has hops, whatever n is. Here tables are drawn, and four rounds are enough to
look random to whoever counts. From the same tables come the same places as from the recipe of real nodes, and a test
sees to it.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import stream


class TreePermutations(NamedTuple):
    """The permutations of some trees over the same nodes."""

    nodes: int
    left: int
    right: int
    """How many values each half has."""
    tables: NDArray[np.int64]
    """Trees x rounds x what is added for each value of the other half; even rounds change the left half."""


def draw_permutations(nodes: int, trees: int, seed: int, *names: str | int) -> TreePermutations:
    """So many trees, under this name."""
    left, right = halves(nodes)
    rng = np.random.default_rng(stream(seed, "places of trees", *names))
    tables = rng.integers(np.array([left, right] * (ROUNDS // 2))[:, None], size=(trees, ROUNDS, left))
    return TreePermutations(nodes, left, right, tables)


def halves(nodes: int) -> tuple[int, int]:
    left = isqrt(nodes - 1) + 1
    return left, -(-nodes // left)


@jit
def place_of(places: TreePermutations, tree: int, node: int) -> int:
    """Where this node stands."""
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
    """Who stands at this place."""
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
