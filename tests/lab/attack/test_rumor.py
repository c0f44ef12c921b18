from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.watched_meshes import expect_nothing, mask
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import mesh_source
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import Graph, from_edges, regular

TREE = from_edges(7, [0, 0, 1, 1, 2, 5], [1, 2, 3, 4, 5, 6])


def spread(graph: Graph, source: int, size: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Every link between who has it and who has not is as likely to be next."""
    infected = mask([source], graph.nodes)
    u, v = graph.edges()
    while np.count_nonzero(infected) < size:
        rim = np.flatnonzero(infected[u] != infected[v])
        link = rng.choice(rim)
        infected[u[link]] = infected[v[link]] = True
    return infected


def orders(source: int, infected: set[int]) -> int:
    """In how many orders the others may have had it from the source: by trying all."""
    return sum(
        all(set(TREE.neighbours(node).tolist()) & {source, *order[:at]} for at, node in enumerate(order))
        for order in permutations(sorted(infected - {source}))
    )


def test_on_a_tree_it_counts_the_orders_in_which_it_may_have_spread() -> None:
    infected = {0, 1, 2, 3, 5, 6}
    counts = np.array([orders(node, infected) if node in infected else 0 for node in range(7)])
    assert mesh_source.score_rumor(TREE, mask(sorted(infected), 7)) == pytest.approx(counts / counts.sum())


def test_it_finds_a_source_far_more_often_than_chance_does() -> None:
    """The positive control, and with it the null control: on trees of degree three a quarter is the limit."""
    rng, hits, areas = np.random.default_rng(1), 0, []
    graph = regular(2000, 3, 1)
    for _ in range(60):
        source = int(rng.integers(graph.nodes))
        infected = spread(graph, source, 60, rng)
        scores, positive = mesh_source.score_rumor(graph, infected)[infected], mask([source], graph.nodes)[infected]
        hits += int(np.argmax(scores) == np.argmax(positive))
        areas.append(auc(scores, positive))
    assert hits / 60 > 5 / 60
    assert np.mean(areas) > 0.85
    expect_nothing(scores, positive)


def test_a_ball_has_its_source_for_its_jordan_centre() -> None:
    graph = regular(2000, 3, 1)
    for source in range(20):
        ball = distances_from(graph, source)
        found = mesh_source.score_jordan_centre(graph, (ball >= 0) & (ball <= 4))
        assert found[source] == found.max() == 1 / 5


def test_without_infected_nodes_no_node_is_named() -> None:
    nobody = np.zeros(7, np.bool_)
    assert (
        mesh_source.score_rumor(TREE, nobody).tolist()
        == mesh_source.score_jordan_centre(TREE, nobody).tolist()
        == [0] * 7
    )
