"""Closure: by hand, against the papers' meshes, and its controls."""

from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import WatchedMesh, expect_nothing, mask, watch_mesh
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure, mesh_source
from veilcast.lab.measure.ranking import precision_at
from veilcast.lab.models.graph import from_edges

DIAMOND = from_edges(6, [0, 0, 1, 2, 3, 0], [1, 2, 3, 3, 4, 5])
"""From 0 two ways lead to 3, by 1 and by 2; 4 hangs on 3, and 5 on 0."""


def posterior(seen: WatchedMesh) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return closure.score_closure(seen.graph, seen.members, distances_from(seen.graph, seen.publisher), 0.1)


@pytest.fixture(scope="module")
def meshes() -> list[WatchedMesh]:
    return [watch_mesh(seed) for seed in range(30)]


def test_the_need_for_a_node_depends_on_its_alternatives() -> None:
    everybody, distance = mask(range(6), 6), distances_from(DIAMOND, 0)
    assert closure.need_probability(DIAMOND, everybody, distance).tolist() == [1.0, 0.5, 0.5, 1.0, 0.0, 0.0]
    without_2 = mask([0, 1, 3, 4], 6)
    assert closure.need_probability(DIAMOND, without_2, distance).tolist() == [1.0, 1.0, 0.0, 1.0, 0.0, 0.0]


def test_an_unneeded_member_subscribes_and_the_others_follow_bayes() -> None:
    everybody, distance = mask(range(6), 6), distances_from(DIAMOND, 0)
    assert np.flatnonzero(closure.find_certain_subscribers(DIAMOND, everybody, distance)).tolist() == [4, 5]
    half = 0.1 / (0.1 + 0.9 * 0.5)
    expected = [0.0, half, half, 0.1, 1.0, 1.0]
    assert closure.score_closure(DIAMOND, everybody, distance, 0.1).tolist() == pytest.approx(expected)


def test_members_off_shortest_paths_are_dropped_with_all_below_them() -> None:
    members, distance = mask([0, 3, 4, 5], 6), distances_from(DIAMOND, 0)
    assert np.flatnonzero(closure.supported_members(DIAMOND, members, distance)).tolist() == [0, 5]
    assert np.flatnonzero(closure.find_certain_subscribers(DIAMOND, members, distance)).tolist() == [5]


def test_the_shell_game_hides_nothing_from_closure(meshes: list[WatchedMesh]) -> None:
    """The positive control: three quarters of the subscribers are certain, and all of these are right."""
    areas, hits, picks = [], [], []
    for seen in meshes:
        scores, asked = posterior(seen), seen.asked
        areas.append(seen.auc(scores))
        hits.append(precision_at(scores[asked], seen.subscribes[asked], 50))
        named = closure.find_certain_subscribers(seen.graph, seen.members, distances_from(seen.graph, seen.publisher))
        assert seen.subscribes[named].all()
        picks.append(np.count_nonzero(named))
    assert np.mean(areas) == pytest.approx(0.889, abs=0.03)
    assert np.mean(hits) == pytest.approx(0.80, abs=0.03)
    assert np.mean(picks) == pytest.approx(37, abs=1)


def test_roles_at_random_inside_the_mesh_are_not_found(meshes: list[WatchedMesh]) -> None:
    """The null control."""
    for seen in meshes[:5]:
        expect_nothing(posterior(seen)[seen.asked], seen.subscribes[seen.asked])


@pytest.mark.parametrize(("mu", "area"), [(0.3, 0.729), (0.6, 0.636), (0.7, 0.602), (0.9, 0.535)])
def test_covers_blur_it(mu: float, area: float) -> None:
    areas = [seen.auc(posterior(seen)) for seen in (watch_mesh(seed, mu) for seed in range(30))]
    assert np.mean(areas) == pytest.approx(area, abs=0.02)


def test_the_publisher_need_not_be_known(meshes: list[WatchedMesh]) -> None:
    for seen in meshes[:10]:
        root = mesh_source.find_likeliest_root(seen.graph, seen.members)
        inferred = closure.score_closure(seen.graph, seen.members, distances_from(seen.graph, root), 0.1)
        assert seen.auc(inferred) == pytest.approx(seen.auc(posterior(seen)), abs=0.06)
