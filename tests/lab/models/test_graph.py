"""Overlays are graphs, have the degrees that they are asked for, and are drawn from the models that they name."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models import graph as graphs
from veilcast.lab.models.graph import Graph
from veilcast.sim.graphs import is_connected, watts_strogatz

SEEDS = st.integers(0, 2**64 - 1)


def ill_formed(graph: Graph) -> str:
    """What keeps this from being a graph in rows; nothing if it is one."""
    rows = [graph.neighbours(node).tolist() for node in range(graph.nodes)]
    if any(row != sorted(set(row)) for row in rows):
        return "a row that is not in order, or a double edge"
    if any(node in row for node, row in enumerate(rows)):
        return "a loop"
    if any(node not in rows[other] for node, row in enumerate(rows) for other in row):
        return "an edge in one row only"
    return ""


def edges(graph: Graph) -> list[tuple[int, int]]:
    u, v = graph.edges()
    return list(zip(u.tolist(), v.tolist(), strict=True))


@pytest.mark.parametrize(
    ("offsets", "targets", "fault"),
    [
        ([0, 2, 3, 4], [2, 1, 0, 0], "in order"),
        ([0, 2, 4], [1, 1, 0, 0], "double"),
        ([0, 1, 2], [0, 1], "loop"),
        ([0, 1, 1], [1], "one row only"),
    ],
)
def test_the_check_of_rows_sees_each_fault(offsets: list[int], targets: list[int], fault: str) -> None:
    assert fault in ill_formed(Graph(np.array(offsets), np.array(targets, np.int32)))


@given(n=st.integers(3, 60), half=st.integers(1, 4), p=st.floats(0, 1), seed=SEEDS)
def test_a_small_world_is_a_graph_with_as_many_edges_as_its_ring(n: int, half: int, p: float, seed: int) -> None:
    half = min(half, (n - 1) // 2)
    graph = graphs.small_world(n, 2 * half, p, seed)
    assert ill_formed(graph) == ""
    assert len(edges(graph)) == n * half
    # Everyone keeps the edges that it owns.
    assert min(graph.degrees) >= half


def test_nothing_rewired_is_a_ring() -> None:
    graph = graphs.small_world(10, 4, 0, 1)
    assert all(
        graph.neighbours(node).tolist() == sorted((node + step) % 10 for step in (-2, -1, 1, 2)) for node in range(10)
    )


def test_who_knows_everybody_keeps_its_edges() -> None:
    assert set(graphs.small_world(5, 4, 1, 1).degrees) == {4}


def test_a_share_of_edges_is_rewired_and_leads_anywhere() -> None:
    graph = graphs.small_world(20_000, 4, 0.2, 1)
    spans = np.array([min(v - u, 20_000 - v + u) for u, v in edges(graph)])
    assert np.mean(spans > 2) == pytest.approx(0.2, abs=3 * (0.16 / 40_000) ** 0.5)
    assert np.mean(spans[spans > 2]) == pytest.approx(5000, rel=0.05)


@pytest.mark.parametrize(("k", "p"), [(4, 0.2), (8, 0.5)])
def test_a_small_world_has_the_degrees_of_the_simulators(k: int, p: float) -> None:
    """Shares of nodes by degree, over 40,000 nodes each, within three standard errors of their difference."""
    n = 2000
    ours = np.concatenate([graphs.small_world(n, k, p, seed).degrees for seed in range(20)])
    theirs = np.concatenate(
        [np.bincount(np.ravel(watts_strogatz(n, k, p, Random(seed))), minlength=n) for seed in range(20)]
    )
    for degree in range(k // 2, 2 * k):
        one, other = np.mean(ours == degree), np.mean(theirs == degree)
        assert abs(one - other) <= 3 * (2 * max(one, other) / len(ours)) ** 0.5


@given(n=st.integers(2, 40), k=st.integers(1, 6), seed=SEEDS)
def test_in_a_regular_graph_all_have_the_same_degree(n: int, k: int, seed: int) -> None:
    k = min(k, n - 1)
    if n * k % 2:
        with pytest.raises(ConfigError, match="neighbours each"):
            graphs.regular(n, k, seed)
        return
    graph = graphs.regular(n, k, seed)
    assert ill_formed(graph) == ""
    assert set(graph.degrees) == {k}


def test_all_regular_graphs_on_four_nodes_are_equally_likely() -> None:
    """There are three rings of four."""
    rings = [tuple(edges(graphs.regular(4, 2, seed))) for seed in range(3000)]
    counts = [rings.count(ring) for ring in dict.fromkeys(rings)]
    assert len(counts) == 3
    assert max(abs(count - 1000) for count in counts) <= 4 * (3000 * 2 / 9) ** 0.5


@given(n=st.integers(3, 60), half=st.integers(1, 4), seed=SEEDS)
def test_who_comes_to_a_scale_free_graph_finds_half_of_k(n: int, half: int, seed: int) -> None:
    half = min(half, (n - 1) // 2)
    graph = graphs.scale_free(n, 2 * half, seed)
    assert ill_formed(graph) == ""
    assert is_connected(n, edges(graph))
    assert min(graph.degrees) == half
    assert len(edges(graph)) == half * (half + 1) // 2 + (n - half - 1) * half


def test_degrees_of_a_scale_free_graph_fall_with_the_third_power() -> None:
    """P(degree = d) = 2 m (m + 1) / (d (d + 1) (d + 2)), with m new edges for each node."""
    degrees = graphs.scale_free(100_000, 4, 1).degrees
    for degree in (2, 3, 4, 6, 10):
        expected = 12 / (degree * (degree + 1) * (degree + 2))
        assert np.mean(degrees == degree) == pytest.approx(expected, rel=0.05)
    assert degrees.max() > 300


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_edges_in_any_order_and_direction_are_a_graph(pairs: list[tuple[int, int]]) -> None:
    graph = graphs.from_edges(10, [u for u, _ in pairs], [v for _, v in pairs])
    assert ill_formed(graph) == ""
    assert edges(graph) == sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    again = graphs.from_edges(10, *graph.edges())
    assert again.offsets.tolist() == graph.offsets.tolist()


@pytest.mark.parametrize("p0", [graphs.small_world(500, 4, 0.2, seed) for seed in range(20)])
def test_the_overlays_of_p0_are_connected(p0: Graph) -> None:
    assert is_connected(500, edges(p0))


def test_a_graph_depends_on_its_parameters_and_seed_alone() -> None:
    def drawn(seed: int) -> list[Any]:
        made = graphs.small_world(99, 4, 0.3, seed), graphs.regular(98, 3, seed), graphs.scale_free(99, 4, seed)
        return [graph.targets.tolist() for graph in made]

    before = drawn(5)
    drawn(6)
    assert drawn(5) == before
    assert all(one != other for one, other in zip(drawn(6), before, strict=True))


@pytest.mark.parametrize(("n", "k", "p"), [(10, 3, 0.1), (10, 0, 0.1), (4, 4, 0.1), (10, 4, 1.5), (10, 4, -0.1)])
def test_a_small_world_that_there_is_not_is_refused(n: int, k: int, p: float) -> None:
    with pytest.raises(ConfigError):
        graphs.small_world(n, k, p, 1)


@pytest.mark.parametrize(("u", "v"), [([0], [10]), ([-1], [2]), ([0, 1], [2])])
def test_edges_that_are_none_are_refused(u: list[int], v: list[int]) -> None:
    with pytest.raises(ConfigError):
        graphs.from_edges(10, u, v)
