"""Meshes at the pace of heartbeats: shortest ways like others, laid by who tells first and covered by who is asked."""

from __future__ import annotations

from statistics import mean

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.models import cover, heartbeat_mesh
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles

SIZES = st.integers(20, 200)
SEEDS = st.integers(0, 2**32)


def sizes(degree: int, mu: float, *, paced: bool, seeds: int = 150) -> float:
    found = []
    for seed in range(seeds):
        graph = small_world(500, degree, 0.2, seed)
        publisher, subscribers = draw_roles(graph, 0.1, seed)
        if paced:
            mesh = heartbeat_mesh.recruit_covers(
                graph, heartbeat_mesh.lay_mesh(graph, publisher, subscribers, seed), mu, seed
            )
        else:
            mesh = cover.add_covers(graph, build_mesh(graph, publisher, subscribers, seed), mu, seed)
        found.append(mesh.members.size)
    return mean(found)


def ends_at_the_publisher(mesh: MeshTree) -> bool:
    at = mesh.members
    for _ in range(mesh.members.size):
        at = mesh.parent[at]
    return bool(np.all(at == mesh.publisher))


@given(SIZES, SEEDS)
def test_every_way_is_a_shortest_one_and_ends_at_the_publisher(n: int, seed: int) -> None:
    graph = small_world(n, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.2, seed)
    mesh = heartbeat_mesh.lay_mesh(graph, publisher, subscribers, seed).mesh
    src, dst = mesh.links()
    assert np.all(mesh.distance[src] == mesh.distance[dst] - 1)
    assert np.all(mesh.parent[subscribers[mesh.distance[subscribers] >= 0]] >= 0)
    assert ends_at_the_publisher(mesh)
    # Nobody is there for nothing: leaves subscribe.
    assert np.all(np.isin(np.setdiff1d(mesh.members, src), [publisher, *subscribers]))


@given(SIZES, SEEDS, st.floats(0, 1))
def test_covers_hang_on_neighbours_one_for_each_and_leave_the_mesh_as_it_was(n: int, seed: int, mu: float) -> None:
    graph = small_world(n, 4, 0.2, seed)
    laid = heartbeat_mesh.lay_mesh(graph, *draw_roles(graph, 0.2, seed), seed)
    before, after = laid.mesh, heartbeat_mesh.recruit_covers(graph, laid, mu, seed)
    assert np.array_equal(after.parent[before.members], before.parent[before.members])
    new = np.setdiff1d(after.members, before.members)
    assert all(after.parent[v] in graph.neighbours(v) for v in new)
    assert len(set(after.parent[new].tolist())) == new.size
    assert before.publisher not in after.parent[new]
    assert ends_at_the_publisher(after)


@given(SIZES, SEEDS)
def test_who_is_passed_on_by_joins_after_those_below_it(n: int, seed: int) -> None:
    graph = small_world(n, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.2, seed)
    laid = heartbeat_mesh.lay_mesh(graph, publisher, subscribers, seed)
    forwarders = np.setdiff1d(laid.mesh.members, [publisher, *subscribers])
    src, dst = laid.mesh.links()
    for v in forwarders:
        assert laid.join_time[v] > laid.join_time[dst[src == v]].min()


def test_covers_that_everybody_wants_leave_out_only_whom_nobody_can_ask() -> None:
    graph = small_world(300, 4, 0.2, 1)
    laid = heartbeat_mesh.lay_mesh(graph, *draw_roles(graph, 0.2, 1), 1)
    assert heartbeat_mesh.recruit_covers(graph, laid, 0.0, 1).members.size == laid.mesh.members.size
    assert heartbeat_mesh.recruit_covers(graph, laid, 1.0, 1).members.size > 250


def test_the_more_neighbours_the_smaller_are_meshes_beside_those_of_uniform_ties() -> None:
    assert sizes(4, 0.0, paced=True) / sizes(4, 0.0, paced=False) > 0.985
    assert 0.94 < sizes(16, 0.0, paced=True) / sizes(16, 0.0, paced=False) < 0.98


def test_who_asks_one_after_the_other_finds_somewhat_fewer_covers() -> None:
    assert 0.96 < sizes(4, 0.9, paced=True) / sizes(4, 0.9, paced=False) < 0.99
