from __future__ import annotations

import numpy as np
import pytest

from support.coalition_view import make_case
from veilcast.lab.attack.insider.group_tests import GroupTests, build_group_tests, recruitment_rate
from veilcast.lab.models.coalition_view import CoalitionView
from veilcast.lab.models.epochs import MESH_POLICIES, run_epochs
from veilcast.lab.models.graph import from_edges
from veilcast.lab.models.link_observations import ASKED, FOLLOWED, RECRUITED, SILENT


def view(observer: list[int], peer: list[int], seen: list[int], delay: list[int], nodes: int) -> CoalitionView:
    """One epoch of a flood from 0, with everybody there."""
    return CoalitionView(
        np.array(observer, np.int32),
        np.array(peer, np.int32),
        np.zeros(1, np.int32),
        np.ones((1, nodes), np.bool_),
        np.array([seen], np.int8),
        np.array([delay], np.int16),
        np.empty((0, 6), np.int32),
        np.empty((0, 5), np.int32),
        np.ones(1, np.int32),
    )


def pool(tests: GroupTests, test: int) -> dict[int, float]:
    rows = slice(tests.offsets[test], tests.offsets[test + 1])
    return dict(zip(tests.member[rows].tolist(), tests.reach[rows].tolist(), strict=True))


# 0 is the origin, 1 the insider. 0 - 1 - 2; below 2 are 3 and 4; 4 has another way, by 5 and 6.
BRANCH = from_edges(7, [0, 1, 2, 2, 0, 5, 6], [1, 2, 3, 4, 5, 6, 4])


def test_a_pool_holds_the_nodes_below_with_the_probability_of_their_path() -> None:
    tests = build_group_tests(BRANCH, view([1, 1], [0, 2], [FOLLOWED, ASKED], [-1, -1], 7))
    assert tests.node.tolist() == [2]
    assert tests.positive.tolist() == [True]
    assert pool(tests, 0) == {2: 1.0, 3: 1.0, 4: 0.5}


def test_silence_is_a_negative_result_as_strong_as_the_probability_to_notice() -> None:
    tests = build_group_tests(BRANCH, view([1, 1], [0, 2], [SILENT, SILENT], [-1, -1], 7))
    assert tests.positive.tolist() == [False]
    assert tests.sight.tolist() == [1.0]  # 2 has no other parent.
    tests = build_group_tests(BRANCH, view([6, 6], [4, 5], [SILENT, SILENT], [-1, -1], 7))
    assert (tests.node.tolist(), tests.sight.tolist()) == ([4], [0.5])


def test_a_delay_says_how_far_below_the_nearest_is() -> None:
    tests = build_group_tests(BRANCH, view([1, 1], [0, 2], [FOLLOWED, ASKED], [-1, 2], 7))
    assert tests.positive.tolist() == [True, False]
    assert pool(tests, 0) == {3: 1.0, 4: 0.5}
    assert pool(tests, 1) == {2: 1.0}


def test_an_insider_below_explains_a_result_away() -> None:
    # 1 and 3 are insiders, 3 asked 2: that 2 asked 1 says nothing of it or of others below it.
    tests = build_group_tests(BRANCH, view([1, 1, 3], [0, 2, 2], [FOLLOWED, ASKED, FOLLOWED], [-1, -1, -1], 7))
    assert tests.quiet.tolist() == [0.0]
    assert pool(tests, 0) == {2: 1.0, 4: 0.5}


def test_a_node_with_a_known_parent_is_in_no_other_pool() -> None:
    # 4 asked 6: its way does not lead through 2.
    tests = build_group_tests(BRANCH, view([1, 1, 6, 6], [0, 2, 4, 5], [FOLLOWED, ASKED, ASKED, FOLLOWED], [-1] * 4, 7))
    pools = {int(node): pool(tests, at) for at, node in enumerate(tests.node)}
    assert pools == {2: {2: 1.0, 3: 1.0}, 4: {4: 1.0}}


def test_a_node_that_preferred_an_insider_prefers_it_again() -> None:
    # 4 may choose 2 or the insider 6. In the second epoch it is silent: if it keeps its choices, it does not ask.
    once = view([6, 6], [4, 5], [ASKED, FOLLOWED], [-1, -1], 7)
    twice = CoalitionView(
        once.observer,
        once.peer,
        np.zeros(2, np.int32),
        np.ones((2, 7), np.bool_),
        np.array([[ASKED, FOLLOWED], [SILENT, SILENT]], np.int8),
        np.full((2, 2), -1, np.int16),
        once.handovers,
        once.stem_passages,
        np.ones(2, np.int32),
    )
    assert build_group_tests(BRANCH, twice).sight.tolist() == [1.0, 0.5]
    assert build_group_tests(BRANCH, twice, kept=True).sight.tolist() == [1.0, 1.0]


def test_results_of_kept_choices_count_once() -> None:
    silent = CoalitionView(
        np.array([6, 6], np.int32),
        np.array([4, 5], np.int32),
        np.zeros(4, np.int32),
        np.ones((4, 7), np.bool_),
        np.full((4, 2), SILENT, np.int8),
        np.full((4, 2), -1, np.int16),
        np.empty((0, 6), np.int32),
        np.empty((0, 5), np.int32),
        np.ones(4, np.int32),
    )
    assert build_group_tests(BRANCH, silent).weight.tolist() == [1.0] * 4
    assert build_group_tests(BRANCH, silent, kept=True).weight.tolist() == [0.25] * 4


@pytest.mark.parametrize("name", ["BL", "SG", "PF fresh", "PFSG fresh"])
def test_certain_results_are_true(name: str) -> None:
    """A node that accepted an invitation had no subscriber below; without recruitment a positive pool has one."""
    world = make_case(name, 3, 6)
    tests = build_group_tests(world.people.graph, world.view)
    assert (np.diff(tests.epoch) >= 0).all()
    sure = tests.positive & (tests.quiet == 1) if "PF" not in name else np.zeros(tests.epoch.size, np.bool_)
    for epoch in run_epochs(world.people, MESH_POLICIES[name], 6):
        for test in np.flatnonzero((tests.epoch == epoch.number) & sure).tolist():
            assert epoch.asking[list(pool(tests, test))].any()
        accepted = world.view.peer[world.view.seen[epoch.number] == RECRUITED]
        assert not epoch.asking[accepted].any()


def test_insiders_estimate_the_recruitment_rate_from_themselves() -> None:
    assert recruitment_rate(make_case("BL", 1, 3).view) == 0
    shares, truth = [], []
    for seed in range(5):
        world = make_case("PF fresh", seed, 4)
        shares.append(recruitment_rate(world.view))
        for epoch in run_epochs(world.people, MESH_POLICIES["PF fresh"], 4):
            outside = epoch.mesh.parent < 0
            truth.append(np.mean(epoch.covered_mesh.parent[outside & epoch.present] >= 0))
    assert np.mean(shares) == pytest.approx(np.mean(truth), abs=0.1)
