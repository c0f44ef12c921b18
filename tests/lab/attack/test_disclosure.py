"""Statistical disclosure and least squares: both on meshes of several topics that are busy side by side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.watched_meshes import NODES, Mask, expect_nothing, mask
from veilcast.lab.attack.observer import disclosure
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import build_mesh, draw_roles

TOPICS = 6


def town(rounds: int, together: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], Mask, Mask]:
    """Activity of nodes while topics are busy; the mesh and the subscribers of the first topic. With the probability
    `together` the second topic is busy in a round just when the first is."""
    rng, graph = np.random.default_rng(seed), small_world(NODES, 4, 0.2, seed)
    meshes, readers = [], []
    for topic in range(TOPICS):
        publisher, subscribers = draw_roles(graph, 0.1, 1000 * seed + topic)
        meshes.append(mask(build_mesh(graph, publisher, subscribers, topic).members))
        readers.append(mask(subscribers))
    busy = rng.random((rounds, TOPICS)) < 0.4
    busy[:, 1] = np.where(rng.random(rounds) < together, busy[:, 0], busy[:, 1])
    causes = busy.astype(np.float64)
    activity = causes @ np.array(meshes, dtype=np.float64) + rng.poisson(0.5, (rounds, NODES))
    return causes, activity, meshes[0], readers[0]


def test_the_score_is_the_difference_of_mean_activities() -> None:
    busy, activity = np.array([True, False, True]), np.array([[3.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert disclosure.score_disclosure(busy, activity).tolist() == [1.0, 0.0]
    assert disclosure.score_disclosure(np.ones(3, np.bool_), activity).tolist() == [0.0, 0.0]


def test_a_difference_of_means_finds_the_mesh_and_nothing_in_shuffled_labels() -> None:
    busy, activity, mesh, readers = town(300, 0.0, 1)
    scores = disclosure.score_disclosure(busy[:, 0] > 0, activity)
    assert auc(scores, mesh) > 0.99
    assert auc(scores, readers) > 0.85
    expect_nothing(scores, readers)


def test_more_rounds_tell_more() -> None:
    def area(rounds: int) -> float:
        busy, activity, mesh, _ = town(rounds, 0.0, 1)
        return auc(disclosure.score_disclosure(busy[:, 0] > 0, activity), mesh)

    assert area(5) + 0.05 < area(10) < area(30) < area(300)


def test_least_squares_finds_the_mesh_and_nothing_in_shuffled_labels() -> None:
    busy, activity, mesh, readers = town(300, 0.0, 1)
    weights = disclosure.solve_weights(disclosure.sum_moments(busy, activity))
    assert weights.shape == (TOPICS, NODES)
    assert weights[0] == pytest.approx(mesh.astype(np.float64), abs=0.4)
    assert auc(weights[0], mesh) == 1
    expect_nothing(weights[0], readers)


def test_least_squares_is_not_misled_by_a_topic_that_is_busy_at_the_same_time() -> None:
    busy, activity, mesh, _ = town(400, 0.9, 2)
    by_means = auc(disclosure.score_disclosure(busy[:, 0] > 0, activity), mesh)
    by_squares = auc(disclosure.solve_weights(disclosure.sum_moments(busy, activity))[0], mesh)
    assert by_means < 0.95 < 0.99 < by_squares


@given(st.integers(1, 39))
def test_rounds_may_be_added_up_in_parts(cut: int) -> None:
    busy, activity, _, _ = town(40, 0.0, 3)
    parts = disclosure.sum_moments(busy[:cut], activity[:cut]) + disclosure.sum_moments(busy[cut:], activity[cut:])
    whole = disclosure.sum_moments(busy, activity)
    assert parts.within == pytest.approx(whole.within)
    assert parts.across == pytest.approx(whole.across)


def test_topics_that_are_always_busy_together_share_the_weight() -> None:
    busy = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    weights = disclosure.solve_weights(disclosure.sum_moments(busy, np.array([[2.0], [0.0], [2.0]])))
    assert weights.sum() == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("busy", [0.0, 1.0])
def test_least_squares_gives_zero_where_all_rounds_are_of_one_kind(busy: float) -> None:
    # What 144 heartbeats of constant cells bring to nodes with three and with five links.
    activity = np.tile([3600.0, 6000.0], (144, 1))
    seen = disclosure.sum_moments(np.full((144, 1), busy), activity)
    assert not disclosure.solve_weights(seen).any()
