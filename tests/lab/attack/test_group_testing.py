from __future__ import annotations

import numpy as np
import pytest

from support.coalition_view import CoalitionCase, make_case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.insider.group_tests import GroupTests, build_group_tests, infer_beliefs


def results(*pools: tuple[bool, dict[int, float]]) -> GroupTests:
    """Each with a result, and who is in it."""
    count = len(pools)
    return GroupTests(
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.array([positive for positive, _ in pools]),
        np.ones(count),
        np.ones(count),
        np.ones(count),
        np.cumsum([0, *(len(members) for _, members in pools)]),
        np.array([node for _, members in pools for node in members], np.int32),
        np.array([reach for _, members in pools for reach in members.values()]),
    )


def test_without_tests_beliefs_equal_the_prior() -> None:
    found = infer_beliefs(results(), 4, 0.2)
    assert 1 / (1 + np.exp(-found)) == pytest.approx(0.2)


def test_one_test_is_bayes_rule() -> None:
    """Of two members who ask with probability 1/5 each, one does: each is the one with 0.2 / 0.36."""
    found = infer_beliefs(results((True, {0: 1.0, 1: 1.0})), 3, 0.2)
    assert 1 / (1 + np.exp(-found)) == pytest.approx([0.2 / 0.36, 0.2 / 0.36, 0.2], abs=0.005)


def test_a_negative_result_clears_one_node_and_incriminates_the_other() -> None:
    found = infer_beliefs(results((True, {0: 1.0, 1: 1.0}), (False, {0: 1.0})), 3, 0.1)
    assert found[0] < -5
    assert found[1] > 3


def mean_aucs(name: str, prior: float, steps: tuple[int, ...], seeds: int, *, kept: bool = False) -> list[float]:
    values = []
    for seed in range(seeds):
        world = make_case(name, 100 + seed, steps[-1])
        tests = [build_group_tests(world.people.graph, world.view.first_epochs(step), kept=kept) for step in steps]
        values.append([world.auc(infer_beliefs(test, 500, prior)) for test in tests])
    return [float(value) for value in np.mean(values, axis=0)]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("BL kept", (0.58, 0.67, 0.74, 0.78)),
        ("BL", (0.62, 0.75, 0.85, 0.90)),
        ("BL hidden", (0.58, 0.72, 0.82, 0.88)),
        ("SG", (0.71, 0.89, 0.96, 0.975)),
        ("PF fresh", (0.63, 0.79, 0.88, 0.92)),
    ],
)
def test_it_finds_subscribers_of_the_papers_meshes(name: str, least: tuple[float, ...]) -> None:
    """The positive control, against the prototype's figures, less what eight worlds may be off."""
    assert (np.array(mean_aucs(name, 0.1, (1, 5, 20, 50), 8, kept=name == "BL kept")) >= least).all()


def test_the_hardened_mesh_defeats_group_tests() -> None:
    assert mean_aucs("H", 0.8, (50,), 16, kept=True)[0] <= 0.57


def test_shuffled_labels_are_not_found() -> None:
    world: CoalitionCase = make_case("BL", 5, 20)
    scores = infer_beliefs(build_group_tests(world.people.graph, world.view), 500, 0.1)
    assert tells_nothing_of_shuffled_labels(scores[world.candidates], world.labels())
