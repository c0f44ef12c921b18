"""The mesh of the kernels: shortest ways, nobody without need, and P0's sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models.graph import Graph, from_edges, small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles


def ill_laid(graph: Graph, mesh: MeshTree, subscribers: np.ndarray) -> str:
    """What keeps this from being a mesh that adverts and subscriptions lay; nothing if it is one."""
    wanted = {int(node) for node in subscribers if mesh.distance[node] >= 0}
    members, parents = set(mesh.members.tolist()), {int(mesh.parent[node]) for node in mesh.members}
    if not wanted | {mesh.publisher} <= members:
        return "a subscriber that was left outside"
    if not members - parents <= wanted | {mesh.publisher}:
        return "somebody inside whom nobody needs"
    for node in members - {mesh.publisher}:
        parent = int(mesh.parent[node])
        if parent not in graph.neighbours(node) or mesh.distance[parent] != mesh.distance[node] - 1:
            return "a way that is not the shortest"
    return ""


@given(
    n=st.integers(3, 60), p=st.floats(0, 1), ratio=st.floats(0, 1), seed=st.integers(0, 2**64 - 1), first=st.booleans()
)
def test_a_mesh_is_of_shortest_ways_and_has_nobody_without_need(
    n: int, p: float, ratio: float, seed: int, first: bool
) -> None:
    graph = small_world(n, 2, p, seed)
    publisher, subscribers = draw_roles(graph, ratio, seed)
    mesh = build_mesh(graph, publisher, subscribers, seed, "first" if first else "uniform")
    assert ill_laid(graph, mesh, subscribers) == ""
    assert mesh.parent[publisher] == publisher


@pytest.mark.parametrize(
    ("parent", "subscribers", "fault"),
    [
        ([0, 0, -1, -1], [1, 3], "outside"),
        ([0, 0, 0, 2], [1], "nobody needs"),
        ([0, 3, 0, 2], [1], "shortest"),
        ([0, 0, -1, 0], [1, 3], "shortest"),
    ],
)
def test_the_check_of_a_mesh_sees_each_fault(parent: list[int], subscribers: list[int], fault: str) -> None:
    """A square, 0 - 1 - 3 - 2 - 0, with the publisher at 0."""
    square = from_edges(4, [0, 1, 3, 2], [1, 3, 2, 0])
    mesh = MeshTree(0, np.array(parent, np.int32), np.array([0, 1, 1, 2], np.int32))
    assert fault in ill_laid(square, mesh, np.array(subscribers))


def test_of_equal_parents_any_is_taken_or_the_first() -> None:
    """Nodes 1, 2 and 3 lie between the publisher 0 and the subscriber 4."""
    graph = from_edges(5, [0, 0, 0, 1, 2, 3], [1, 2, 3, 4, 4, 4])
    taken = [int(build_mesh(graph, 0, np.array([4], np.int32), seed).parent[4]) for seed in range(3000)]
    assert max(abs(taken.count(node) - 1000) for node in (1, 2, 3)) <= 4 * (3000 * 2 / 9) ** 0.5
    assert {int(build_mesh(graph, 0, np.array([4], np.int32), seed, "first").parent[4]) for seed in range(9)} == {1}


def test_whom_no_advert_reaches_stays_outside() -> None:
    mesh = build_mesh(from_edges(4, [0, 2], [1, 3]), 0, np.array([1, 3], np.int32), 1)
    assert mesh.members.tolist() == [0, 1]
    assert mesh.distance.tolist() == [0, 1, -1, -1]


def test_links_lead_from_parents_to_children() -> None:
    mesh = build_mesh(from_edges(5, [0, 1, 1, 3], [1, 2, 3, 4]), 0, np.array([2, 4], np.int32), 1)
    assert [column.tolist() for column in mesh.links()] == [[0, 1, 1, 3], [1, 2, 3, 4]]
    offsets, children = mesh.children
    assert children[offsets[1] : offsets[2]].tolist() == [2, 3]


def test_roles_are_drawn_evenly_and_never_twice() -> None:
    graph, played = small_world(20, 4, 0.2, 1), np.zeros((2, 20))
    for seed in range(2000):
        publisher, subscribers = draw_roles(graph, 0.25, seed)
        assert len(subscribers) == 5
        assert publisher not in subscribers
        assert (np.diff(subscribers) > 0).all()
        played[0, publisher] += 1
        played[1, subscribers] += 1
    for counts, share in zip(played, (1 / 20, 1 / 4), strict=True):
        assert np.abs(counts - 2000 * share).max() <= 4 * (2000 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize(("ratio", "readers"), [(0.0, 0), (0.1, 2), (1.0, 19)])
def test_the_ratio_says_how_many_subscribe(ratio: float, readers: int) -> None:
    assert len(draw_roles(small_world(20, 4, 0.2, 1), ratio, 1)[1]) == readers


def test_a_ratio_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="ratio"):
        draw_roles(small_world(20, 4, 0.2, 1), 1.1, 1)


def sizes(ratio: float, seeds: range) -> list[int]:
    found = []
    for seed in seeds:
        graph = small_world(500, 4, 0.2, seed)
        found.append(len(build_mesh(graph, *draw_roles(graph, ratio, seed), seed).members))
    return found


def test_p0_fig_12_a_thousand_baseline_meshes_have_142_nodes() -> None:
    assert np.mean(sizes(0.1, range(1000))) == pytest.approx(142, abs=1)


def test_p0_fig_17_half_of_the_overlay_subscribes_at_a_ratio_of_a_quarter() -> None:
    assert np.mean([125 / (size - 1) for size in sizes(0.25, range(1000))]) == pytest.approx(0.505, abs=0.002)


def test_a_mesh_depends_on_its_parameters_and_seed_alone() -> None:
    assert sizes(0.1, range(5)) == sizes(0.1, range(10))[:5]
