"""Covers of the kernels: each comes in by a neighbour, by the rule, and in P0's numbers."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles

Rule = Literal["one", "each"]


@given(n=st.integers(5, 80), mu=st.floats(0, 1), seed=st.integers(0, 2**64 - 1), rule=st.sampled_from(["one", "each"]))
def test_covers_hang_on_neighbours_and_leave_the_mesh_as_it_was(n: int, mu: float, seed: int, rule: Rule) -> None:
    graph = small_world(n, 4, 0.2, seed)
    mesh = build_mesh(graph, *draw_roles(graph, 0.1, seed), seed)
    before = mesh.parent.copy()
    grown = add_covers(graph, mesh, mu, seed, rule)
    assert mesh.parent.tolist() == before.tolist()
    assert grown.parent[mesh.members].tolist() == before[mesh.members].tolist()
    covers = [node for node in grown.members.tolist() if before[node] < 0]
    assert all(grown.parent[node] in graph.neighbours(node) for node in covers)
    hosts = [int(grown.parent[node]) for node in covers]
    assert mesh.publisher not in hosts
    if rule == "one":
        assert len(set(hosts)) == len(hosts)
    # Every way leads to the publisher.
    up = grown.members
    for _ in range(n):
        up = grown.parent[up]
    assert set(up.tolist()) == {mesh.publisher}


@pytest.mark.parametrize("rule", ["one", "each"])
def test_without_a_coin_that_falls_so_nobody_comes_in(rule: Rule) -> None:
    graph = small_world(100, 4, 0.2, 1)
    mesh = build_mesh(graph, *draw_roles(graph, 0.1, 1), 1)
    assert add_covers(graph, mesh, 0.0, 1, rule).parent.tolist() == mesh.parent.tolist()


def test_each_neighbour_and_theirs_are_everybody() -> None:
    graph = small_world(500, 4, 0.2, 1)
    mesh = build_mesh(graph, *draw_roles(graph, 0.1, 1), 1)
    assert len(add_covers(graph, mesh, 1.0, 1, "each").members) == 500


def test_any_neighbour_outside_is_as_likely() -> None:
    """The subscriber 1 has the neighbours 3, 4 and 5 outside, who have no others; 2 is in the mesh already."""
    graph = from_edges(6, [0, 1, 1, 1, 0, 1], [1, 3, 4, 5, 2, 2])
    mesh = build_mesh(graph, 0, np.array([1, 2], np.int32), 1)
    came = [node for seed in range(3000) for node in (3, 4, 5) if add_covers(graph, mesh, 0.5, seed).parent[node] == 1]
    assert len(came) == pytest.approx(1500, abs=4 * 750**0.5)
    assert max(abs(came.count(node) - len(came) / 3) for node in (3, 4, 5)) <= 4 * (len(came) * 2 / 9) ** 0.5


@pytest.mark.parametrize("mu", [-0.1, 1.1])
def test_a_mu_that_is_no_probability_is_refused(mu: float) -> None:
    graph = small_world(10, 4, 0.2, 1)
    with pytest.raises(ConfigError, match="mu"):
        add_covers(graph, MeshTree(0, np.zeros(10, np.int32), np.zeros(10, np.int32)), mu, 1)


def sizes(mu: float, rule: Rule, seeds: range) -> list[int]:
    found = []
    for seed in seeds:
        graph = small_world(500, 4, 0.2, seed)
        mesh = build_mesh(graph, *draw_roles(graph, 0.1, seed), seed)
        found.append(len(add_covers(graph, mesh, mu, seed, rule).members))
    return found


@pytest.mark.parametrize(("mu", "size", "within"), [(0.6, 289, 2), (1.0, 484, 1)])
def test_p0_fig_12_overlays_of_a_thousand_meshes_with_covers(mu: float, size: int, within: int) -> None:
    assert np.mean(sizes(mu, "one", range(1000))) == pytest.approx(size, abs=within)


def test_by_the_letter_of_the_text_nearly_everybody_is_a_cover() -> None:
    assert np.mean(sizes(0.6, "each", range(200))) == pytest.approx(478, abs=2)


def test_covers_depend_on_parameters_and_seed_alone() -> None:
    assert sizes(0.6, "one", range(5)) == sizes(0.6, "one", range(10))[:5]
