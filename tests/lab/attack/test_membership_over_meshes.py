"""Persistence over meshes: the numbers of the paper protocol, what covers change, and the controls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from support.watched_meshes import NODES, Mask, expect_nothing, mask
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure
from veilcast.lab.measure.ranking import auc, precision_at
from veilcast.lab.models.epochs import MeshPolicy, run_epochs, settle_population
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import draw_roles

SEEDS = range(30)
NEW_PUBLISHER = MeshPolicy(origin="fresh")
COVERS = MeshPolicy(origin="fresh", mu=0.6)
STICKY = MeshPolicy(origin="fresh", mu=1.0, recruits="sole")


class Meshes(NamedTuple):
    subscribes: Mask
    members: Mask
    supported: Mask
    asked: Mask
    needed: NDArray[np.float64]


def meshes(conduct: MeshPolicy, churn: float, count: int, seed: int) -> Meshes:
    graph = small_world(NODES, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.1, seed)
    rows = []
    for epoch in run_epochs(settle_population(graph, publisher, subscribers, 0.0, churn, seed), conduct, count):
        root = epoch.mesh.publisher
        members, distance = mask(epoch.covered_mesh.members), distances_from(epoch.graph, root)
        supported = closure.supported_members(epoch.graph, members, distance)
        asked = epoch.present & (np.arange(NODES) != root)
        rows.append((members, supported, asked, closure.need_probability(epoch.graph, supported, distance)))
    return Meshes(mask(subscribers), *(np.array(column) for column in zip(*rows, strict=True)))


def hits(conduct: MeshPolicy, count: int, churn: float = 0.0, covers: float | None = None) -> float:
    """The share of readers among the |Sa| named, by frequency, or with closure where a chance of covers is given."""
    found = []
    for seed in SEEDS:
        seen = meshes(conduct, churn, count, seed)
        if covers is None:
            scores = closure.score_membership_frequency(seen.members, seen.asked)
        else:
            scores = closure.score_membership_likelihood(seen.supported, seen.asked, seen.needed, covers)
        found.append(precision_at(scores, seen.subscribes, 50))
    return float(np.mean(found))


@pytest.mark.parametrize(("count", "share"), [(2, 0.64), (3, 0.79), (5, 0.92)])
def test_a_few_publisher_changes_name_most_subscribers(count: int, share: float) -> None:
    assert hits(NEW_PUBLISHER, count) == pytest.approx(share, abs=0.03)


def test_ten_publisher_changes_name_nearly_all() -> None:
    """The positive control."""
    assert hits(NEW_PUBLISHER, 10) >= 0.97


@pytest.mark.parametrize(("count", "share"), [(2, 0.93), (3, 0.97), (5, 1.0)])
def test_with_closure_two_are_enough(count: int, share: float) -> None:
    assert hits(NEW_PUBLISHER, count, covers=0.0) == pytest.approx(share, abs=0.02)


def test_a_tenth_away_is_nearly_as_good_as_a_new_publisher() -> None:
    assert hits(MeshPolicy(), 10, churn=0.1) == pytest.approx(0.81, abs=0.03)
    assert hits(MeshPolicy(), 5, churn=0.1, covers=0.0) == pytest.approx(0.95, abs=0.02)


def test_new_ties_alone_tell_little_more_each_time() -> None:
    assert hits(MeshPolicy(), 20) == pytest.approx(0.46, abs=0.03)
    assert hits(MeshPolicy(), 20, covers=0.0) == pytest.approx(0.87, abs=0.03)


def test_fresh_covers_wear_off_and_sticky_ones_last() -> None:
    assert hits(COVERS, 20) == pytest.approx(0.92, abs=0.03)
    assert hits(STICKY, 20) == pytest.approx(0.32, abs=0.03)
    assert hits(STICKY, 20, covers=0.0) == pytest.approx(0.57, abs=0.03)


def test_an_observer_that_knows_the_rate_of_covers_learns_more() -> None:
    assert hits(COVERS, 20, covers=0.35) > hits(COVERS, 20, covers=0.0) + 0.05
    assert hits(STICKY, 20, covers=0.35) > hits(STICKY, 20, covers=0.0) + 0.1


def test_neither_score_finds_shuffled_labels() -> None:
    seen = meshes(NEW_PUBLISHER, 0.1, 5, 1)
    expect_nothing(closure.score_membership_frequency(seen.members, seen.asked), seen.subscribes)
    expect_nothing(closure.score_membership_likelihood(seen.supported, seen.asked, seen.needed), seen.subscribes)


def test_unasked_nodes_keep_their_score() -> None:
    members, asked = np.array([[True, True], [False, True]]), np.array([[True, True], [False, True]])
    assert closure.score_membership_frequency(members, asked).tolist() == pytest.approx([2 / 3, 3 / 4])
    told = closure.score_membership_likelihood(members, asked, np.full((2, 2), 0.5))
    assert told.tolist() == pytest.approx([np.log(2), 2 * np.log(2)])


def test_one_absence_outweighs_many_presences() -> None:
    members, asked = np.ones((5, 2), np.bool_), np.ones((5, 2), np.bool_)
    members[0, 0] = False
    told = closure.score_membership_likelihood(members, asked, np.full((5, 2), 0.3))
    assert auc(told, np.array([False, True])) == 1
