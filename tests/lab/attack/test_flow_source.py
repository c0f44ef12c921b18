from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import NODES, expect_nothing, mask, watch_mesh
from veilcast.lab.attack.observer import mesh_source


def columns(*copies: tuple[int, int, int, int], nodes: int = 4) -> list[float]:
    publication, src, dst, at = np.array(copies, dtype=np.int64).reshape(-1, 4).T
    return list(mesh_source.score_flow_source(publication, src.astype(np.int32), dst.astype(np.int32), at, nodes))


def test_a_node_that_sends_before_it_receives_is_the_source() -> None:
    assert columns((7, 0, 1, 10), (7, 1, 2, 20), (7, 2, 0, 30)) == [1, 0, 0, 0]
    assert columns((7, 0, 1, 10), (7, 1, 2, 20), (9, 1, 3, 5)) == [0.5, 0.5, 0, 0]
    assert columns() == [0, 0, 0, 0]


@pytest.mark.parametrize("missed", [0.0, 0.5])
def test_it_finds_the_publisher_in_twenty_publications_though_half_of_the_copies_are_missed(missed: float) -> None:
    """The positive control, and with it the null control."""
    rng, seen = np.random.default_rng(1), watch_mesh(1)
    src, dst = seen.mesh.links()
    rows = [np.flatnonzero(rng.random(len(src)) >= missed) for _ in range(20)]
    which = np.concatenate(rows)
    publication = np.repeat(np.arange(20), [len(each) for each in rows])
    at = seen.mesh.distance[dst[which]].astype(np.int64)
    scores = mesh_source.score_flow_source(publication, src[which], dst[which], at, NODES)
    assert scores.argmax() == seen.publisher
    assert np.count_nonzero(scores == scores.max()) == 1
    expect_nothing(scores, mask([seen.publisher]))


def test_on_constantly_busy_links_no_source_stands_out() -> None:
    rng = np.random.default_rng(2)
    u, v = watch_mesh(1).graph.edges()
    src, dst = np.concatenate([u, v]), np.concatenate([v, u])
    publication = np.repeat(np.arange(50), len(src))
    at = rng.integers(0, 10**6, len(publication))
    scores = mesh_source.score_flow_source(publication, np.tile(src, 50), np.tile(dst, 50), at, NODES)
    assert scores.std() < 0.1
    assert scores.mean() == pytest.approx(0.5, abs=0.02)
