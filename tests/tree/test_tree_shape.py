"""The shape of a tree: no wider than necessary, and parents and children agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import LocalError
from veilcast.tree import tree_shape


@pytest.mark.parametrize(("n", "b"), [(500, 8), (5_000, 17), (100_000, 47)])
def test_the_branching_of_three_layers_is_as_computed(n: int, b: int) -> None:
    assert tree_shape.branching_factor(n, 3) == b


@given(st.integers(1, 5000), st.integers(1, 6))
def test_no_smaller_branching_factor_suffices(n: int, r: int) -> None:
    b = tree_shape.branching_factor(n, r)
    room = [sum(width**layer for layer in range(r + 1)) for width in (b - 1, b)]
    assert room[1] >= n
    assert b == 1 or room[0] < n
    assert tree_shape.place_depth(n - 1, b) <= r


@given(st.integers(1, 400), st.integers(1, 9))
def test_every_place_except_the_root_has_exactly_one_parent(n: int, b: int) -> None:
    below = [child for place in range(n) for child in tree_shape.child_places(place, b, n)]
    assert below == list(range(1, n))
    for place in range(n):
        for child in tree_shape.child_places(place, b, n):
            assert tree_shape.parent_place(child, b) == place
            assert tree_shape.path_to_root(child, b) == (child, *tree_shape.path_to_root(place, b))
            assert tree_shape.place_depth(child, b) == tree_shape.place_depth(place, b) + 1
    assert tree_shape.path_to_root(0, b) == (0,)


def test_an_impossible_tree_is_refused() -> None:
    for n, r in ((0, 3), (5, 0)):
        with pytest.raises(LocalError):
            tree_shape.branching_factor(n, r)
    with pytest.raises(LocalError):
        tree_shape.parent_place(0, 3)
