"""The leaf rule: P0's worked example as exact fractions, what it cannot see, and its controls."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.observer.leaf_rule import find_leaves, find_members, score_leaf_rule
from veilcast.lab.measure.ranking import auc, auc_by_chance
from veilcast.lab.runs.mesh.overlay_setup import WORKED_EXAMPLES, WorkedExample


def ends(*links: tuple[int, int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    array = np.array(links, dtype=np.int32).reshape(-1, 2)
    return array[:, 0], array[:, 1]


@pytest.mark.parametrize(("covers", "accuracy"), [(0, (4, 5)), (2, (3, 7)), (3, (4, 8))])
def test_p0_fig_7_comes_out_as_printed(covers: int, accuracy: tuple[int, int]) -> None:
    picture: WorkedExample = WORKED_EXAMPLES[covers]
    named = find_leaves(picture.src, picture.dst, picture.nodes)
    others = np.arange(picture.nodes) != picture.publisher
    right = np.count_nonzero((named == picture.subscribes)[others])
    assert Fraction(int(right), int(np.count_nonzero(others))) == Fraction(*accuracy)


def test_a_node_that_receives_and_forwards_nothing_is_named() -> None:
    src, dst = ends((0, 1), (1, 2), (1, 3))
    assert find_leaves(src, dst, 5).tolist() == [False, False, True, True, False]
    assert find_members(src, dst, 5).tolist() == [True, True, True, True, False]


def test_a_leaf_scores_more_than_an_inner_node_and_that_more_than_an_outsider() -> None:
    src, dst = ends((0, 1), (1, 2))
    assert score_leaf_rule(src, dst, 4).tolist() == [0.0, 0.5, 1.0, 0.0]


def test_without_observations_no_node_is_named() -> None:
    src, dst = ends()
    assert not find_leaves(src, dst, 3).any()


def test_without_defence_every_named_node_is_a_subscriber_and_the_score_finds_them() -> None:
    """The positive control: paths end at subscribers."""
    rng = np.random.default_rng(1)
    src, dst, subscribes = tree(rng, 400)
    named = find_leaves(src, dst, 400)
    assert not (named & ~subscribes).any()
    assert auc(score_leaf_rule(src, dst, 400)[1:], subscribes[1:]) > 0.9


def test_the_score_tells_nothing_about_shuffled_labels() -> None:
    """The null control: 95 of 100 shuffles lie where chance puts them."""
    rng = np.random.default_rng(2)
    src, dst, subscribes = tree(rng, 400)
    guess = score_leaf_rule(src, dst, 400)[1:]
    positives = int(np.count_nonzero(subscribes[1:]))
    low, high = auc_by_chance(positives, 399 - positives)
    values = [auc(guess, rng.permutation(subscribes[1:])) for _ in range(200)]
    assert np.mean([low <= value <= high for value in values]) >= 0.93
    assert np.mean(values) == pytest.approx(0.5, abs=3 * np.std(values) / len(values) ** 0.5)


def tree(rng: np.random.Generator, nodes: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """A random tree under node 0, pruned to the paths of a tenth of its nodes."""
    parent = [0, *(int(rng.integers(max(0, node - 40), node)) for node in range(1, nodes))]
    subscribes = np.zeros(nodes, dtype=np.bool_)
    subscribes[rng.choice(np.arange(1, nodes), nodes // 10, replace=False)] = True
    links: dict[int, int] = {}
    for node in np.flatnonzero(subscribes).tolist():
        while node and node not in links:
            links[node] = parent[node]
            node = parent[node]
    src, dst = ends(*((above, below) for below, above in links.items()))
    return src, dst, subscribes
