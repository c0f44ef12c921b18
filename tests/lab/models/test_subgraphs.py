"""Parts of overlays: balls are the nearest nodes, and a bound on links is kept by taking no more than must be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.models.graph import Graph, from_edges, scale_free, small_world
from veilcast.lab.models.mesh import hop_distances
from veilcast.lab.models.subgraphs import induce_subgraph, limit_degrees, nearest_nodes


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in zip(*graph.edges(), strict=True)}


@given(st.integers(0, 2**32), st.integers(1, 90))
def test_a_ball_is_the_nearest_nodes_and_their_links_and_hangs_together(seed: int, size: int) -> None:
    graph = small_world(80, 4, 0.2, seed)
    nodes = nearest_nodes(graph, 7, size)
    distance = hop_distances(graph, 7)[0]
    reached = np.count_nonzero(distance >= 0)
    assert (nodes.size, 7 in nodes, nodes.tolist()) == (min(size, reached), True, sorted(set(nodes.tolist())))
    outside = np.setdiff1d(np.flatnonzero(distance >= 0), nodes)
    assert not outside.size or distance[nodes].max() <= distance[outside].min()
    part = induce_subgraph(graph, nodes)
    number = {int(node): place for place, node in enumerate(nodes)}
    inside = {(number[u], number[v]) for u, v in edges_of(graph) if u in number and v in number}
    assert edges_of(part) == inside
    assert (hop_distances(part, number[7])[0] >= 0).all()


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_nobody_keeps_more_links_than_it_may_and_none_is_lost_for_which_both_had_room(seed: int, most: int) -> None:
    graph = scale_free(60, 4, seed)
    less = limit_degrees(graph, most, seed)
    assert less.degrees.max() <= most
    lost = edges_of(graph) - edges_of(less)
    assert edges_of(less) <= edges_of(graph)
    assert all(most in (less.degree(u), less.degree(v)) for u, v in lost)
    assert (less is graph) == (graph.degrees.max() <= most)


def test_which_links_a_hub_loses_is_drawn() -> None:
    star = from_edges(9, [0] * 8, range(1, 9))
    kept = {tuple(limit_degrees(star, 3, seed).neighbours(0).tolist()) for seed in range(20)}
    assert len(kept) > 5
    assert {node for three in kept for node in three} == set(range(1, 9))
