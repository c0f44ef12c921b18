"""Kernels have the same trees as nodes: from the same tables, the same places, parents and costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.lab.models import tree
from veilcast.lab.models.permutation import TreePermutations, draw_permutations, node_at, place_of
from veilcast.tree import tree_shape
from veilcast.tree.permutation import Permutation


def twin(real: Permutation) -> TreePermutations:
    """The same, for kernels: with rows of one length."""
    tables = np.zeros((1, len(real.tables), max(real.left, real.right)), np.int64)
    for number, table in enumerate(real.tables):
        tables[0, number, : len(table)] = table
    return TreePermutations(real.n, real.left, real.right, tables)


@given(st.integers(2, 700), st.binary(min_size=16, max_size=16), st.sampled_from([4, 10]))
def test_places_are_those_of_the_recipe(nodes: int, key: bytes, rounds: int) -> None:
    real = Permutation(Secret(key), nodes, rounds)
    same = twin(real)
    for number in range(0, nodes, 7):
        assert place_of(same, 0, number) == real.place(number)
        assert node_at(same, 0, number) == real.node(number)


@given(st.integers(2, 400), st.integers(0, 100))
def test_everybody_has_a_place_and_every_place_somebody(nodes: int, seed: int) -> None:
    places = draw_permutations(nodes, 2, seed, "any")
    found = [place_of(places, 1, node) for node in range(nodes)]
    assert sorted(found) == list(range(nodes))
    assert [node_at(places, 1, place) for place in found] == list(range(nodes))


def test_trees_drawn_apart_are_apart() -> None:
    first, second = (draw_permutations(300, 2, 5, name) for name in ("one", "two"))
    placed = [
        [place_of(places, number, node) for node in range(300)] for places in (first, second) for number in (0, 1)
    ]
    assert all(np.mean(np.equal(one, other)) < 0.03 for one in placed for other in placed if one is not other)


@pytest.mark.parametrize("nodes", [2, 9, 10, 73, 500, 5_000, 100_000])
def test_trees_branch_as_those_of_nodes_do(nodes: int) -> None:
    assert tree.least_branching(nodes, 3) == tree_shape.branching_factor(nodes, 3)


def test_no_tree_is_without_nodes_or_hops_and_nobody_is_taken_twice() -> None:
    for nodes, depth in ((1, 3), (10, 0)):
        with pytest.raises(ConfigError, match="depth of one"):
            tree.least_branching(nodes, depth)
    with pytest.raises(ConfigError, match="at most all"):
        tree.draw_nodes(5, 6, 1)


def test_parents_are_those_of_a_plan_that_is_turned_to_its_root() -> None:
    real = Permutation(Secret(b"sixteen bytes so"), 200)
    root, b = 17, tree_shape.branching_factor(200, 3)
    first = real.place(root)
    trees = tree.SpanningTrees(twin(real), b, np.array([first]))
    for node, [above] in enumerate(tree.all_parents(trees)):
        place = (real.place(node) - first) % 200
        assert above == (real.node((tree_shape.parent_place(place, b) + first) % 200) if place else -1)
    assert tree.all_parents(trees)[root, 0] == -1
