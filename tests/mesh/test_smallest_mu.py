"""The smallest mu, checked on meshes and covers of the lab models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.smallest_mu import smallest_mu
from veilcast.errors import ConfigError
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import build_mesh, draw_roles
from veilcast.mesh.config import CoverConfig

NODES, SEEDS = 500, range(1000, 1100)


def shares(ratio: float, degree: int, mu: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """|Sa|/|Va| of meshes other than those that the formula was fitted to."""
    found = []
    for seed in SEEDS:
        graph = small_world(NODES, degree, 0.2, seed)
        publisher, subscribers = draw_roles(graph, ratio, seed)
        mesh = add_covers(graph, build_mesh(graph, publisher, subscribers, seed), mu, seed)
        found.append(len(subscribers) / (len(mesh.members) - 1))
    return np.array(found)


@pytest.mark.parametrize("degree", [4, 6, 8, 10, 12, 16])
@pytest.mark.parametrize("ratio", [0.2, 0.25, 0.3, 0.35, 0.4, 0.45])
def test_smallest_mu_keeps_subscribers_below_half_of_the_mesh_and_a_much_smaller_mu_does_not(
    ratio: float, degree: int
) -> None:
    mu = smallest_mu(ratio, degree)
    assert np.mean(shares(ratio, degree, mu) < 0.5) >= 0.9
    if mu > 0.17:
        assert np.mean(shares(ratio, degree, mu - 0.17)) > 0.5


def test_few_subscribers_need_no_covers() -> None:
    assert smallest_mu(0.1, 4) == 0
    assert shares(0.1, 4, 0.0).max() < 0.5


@pytest.mark.parametrize("ratio", [0.5, 0.6, 0.9])
def test_half_of_all_nodes_cannot_be_hidden_among_the_other_half(ratio: float) -> None:
    with pytest.raises(ConfigError, match="no covers"):
        smallest_mu(ratio, 4)


@pytest.mark.parametrize(("ratio", "degree"), [(0.0, 4), (1.0, 4), (0.3, 2), (0.3, 40), (float("nan"), 4)])
def test_values_outside_the_measured_range_are_refused(ratio: float, degree: float) -> None:
    with pytest.raises(ConfigError):
        smallest_mu(ratio, degree)


@given(st.floats(0.01, 0.45), st.floats(4, 16), st.floats(0, 0.05))
def test_more_subscribers_never_need_fewer_covers(ratio: float, degree: float, more: float) -> None:
    mu = smallest_mu(ratio, degree)
    assert CoverConfig("one", mu).mu == mu
    if ratio + more <= 0.45:
        assert smallest_mu(ratio + more, degree) >= mu - 1e-12
