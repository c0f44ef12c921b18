"""Small worlds have the edges they should, and always the same."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.sim.graphs import watts_strogatz


@given(st.integers(3, 60), st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**32))
def test_rewiring_keeps_the_number_of_edges_and_makes_no_loop_or_double(n: int, half: int, p: float, seed: int) -> None:
    k = min(2 * half, (n - 1) // 2 * 2)
    edges = watts_strogatz(n, k, p, Random(seed))
    assert len(edges) == len(dict.fromkeys(edges)) == n * k // 2
    assert all(0 <= u < v < n for u, v in edges)


def test_without_rewiring_it_is_a_ring() -> None:
    assert watts_strogatz(5, 2, 0, Random(1)) == [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]


def test_the_same_generator_gives_the_same_graph_and_another_another() -> None:
    assert watts_strogatz(100, 4, 0.1, Random(1)) == watts_strogatz(100, 4, 0.1, Random(1))
    assert watts_strogatz(100, 4, 0.1, Random(1)) != watts_strogatz(100, 4, 0.1, Random(2))


@pytest.mark.parametrize(
    ("n", "k", "p", "key"), [(5, 3, 0.1, "neighbours"), (4, 4, 0.1, "neighbours"), (9, 2, 2, "rewire")]
)
def test_impossible_graphs_are_refused(n: int, k: int, p: float, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        watts_strogatz(n, k, p, Random(1))
