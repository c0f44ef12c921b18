from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import WatchedMesh, expect_nothing, mask, watch_mesh
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure
from veilcast.lab.measure.ranking import precision_at
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.mesh import build_mesh


def scores(seen: WatchedMesh) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return closure.score_centrality(seen.graph, seen.members, distances_from(seen.graph, seen.publisher))


def test_a_node_with_two_possible_parents_counts_half_for_each() -> None:
    graph = from_edges(5, [0, 0, 1, 2, 3], [1, 2, 3, 3, 4])
    assert closure.expected_subtree_sizes(graph, distances_from(graph, 0)).tolist() == [5.0, 2.0, 2.0, 2.0, 1.0]


def test_sizes_are_the_means_over_many_trees() -> None:
    graph, everybody = small_world(40, 4, 0.2, 1), np.arange(1, 40, dtype=np.int32)
    found = np.zeros(40)
    for seed in range(2000):
        parent = build_mesh(graph, 0, everybody, seed).parent
        above = np.arange(40)
        for _ in range(40):
            np.add.at(found, above[above != 0], 1)
            above = np.where(above == 0, 0, parent[above])
    expected = closure.expected_subtree_sizes(graph, distances_from(graph, 0))
    assert found[1:] / 2000 == pytest.approx(expected[1:], rel=0.08)


def test_it_finds_subscribers_at_the_rim_without_the_shape_of_the_mesh() -> None:
    """The positive control."""
    worlds = [watch_mesh(seed) for seed in range(30)]
    assert np.mean([seen.auc(scores(seen)) for seen in worlds]) == pytest.approx(0.824, abs=0.02)
    hits = [precision_at(scores(seen)[seen.asked], seen.subscribes[seen.asked], 50) for seen in worlds]
    assert np.mean(hits) == pytest.approx(0.69, abs=0.02)


def test_it_finds_nothing_in_shuffled_labels() -> None:
    seen = watch_mesh(1)
    expect_nothing(scores(seen)[seen.asked], seen.subscribes[seen.asked])


def test_no_node_outside_the_mesh_is_named() -> None:
    graph = from_edges(3, [0, 1], [1, 2])
    assert closure.score_centrality(graph, mask([0, 1], 3), distances_from(graph, 0)).tolist() == [0.0, 0.5, 0.0]
