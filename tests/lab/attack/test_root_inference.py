from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import expect_nothing, mask, watch_mesh
from veilcast.lab.attack.observer import mesh_source
from veilcast.lab.models.graph import from_edges

RING = from_edges(6, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])


def test_the_ends_of_a_gap_explain_only_what_a_shortest_way_reaches() -> None:
    """Of a ring of six the sixth is missing: from the middle all is explained, from an end not what lies across."""
    found = mesh_source.score_roots(RING, mask([0, 1, 2, 3, 4], 6))
    assert found.tolist() == pytest.approx([0.8, 1.0, 1.0, 1.0, 0.8, 0.0])
    assert np.flatnonzero(mesh_source.find_possible_roots(RING, mask([0, 1, 2, 3, 4], 6))).tolist() == [1, 2, 3]


def test_the_publisher_is_nearly_always_the_only_root() -> None:
    """The positive control."""
    found = []
    for seed in range(20):
        seen = watch_mesh(seed)
        candidates = mesh_source.find_possible_roots(seen.graph, seen.members)
        assert candidates[seen.publisher]
        found.append(np.count_nonzero(candidates))
    assert np.mean(found) < 1.2


def test_few_covers_hide_no_root_and_many_do() -> None:
    def found(mu: float) -> float:
        worlds = [watch_mesh(seed, mu) for seed in range(15)]
        return float(
            np.mean([mesh_source.find_likeliest_root(seen.graph, seen.members) == seen.publisher for seen in worlds])
        )

    assert found(0.3) > 0.8
    assert found(0.9) < 0.4


def test_the_root_of_a_shuffled_mesh_is_not_found() -> None:
    """The null control."""
    seen = watch_mesh(1)
    scores = mesh_source.score_roots(seen.graph, seen.members)[seen.members]
    expect_nothing(scores, mask([seen.publisher])[seen.members])
