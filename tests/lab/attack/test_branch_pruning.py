from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.coalition_view import tells_nothing_of_shuffled_labels
from support.small_population import make_population
from veilcast.lab.attack.insider.lone_insider import (
    find_branches,
    score_branch_subscribers,
    score_first_branch,
    score_nearest_branches,
)
from veilcast.lab.measure.information import measure_calibration
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.coalition_view import subscription_delays
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population, run_epochs
from veilcast.lab.models.graph import Graph, from_edges

FORK = from_edges(6, [0, 0, 1, 2, 3, 1], [1, 2, 3, 3, 4, 5])
"""From 0: 1 and 2; behind both 3 and then 4; behind 1 alone 5."""


def hosted(seed: int, degree: int = 8) -> tuple[Population, Epoch, NDArray[np.bool_], NDArray[np.int16]]:
    """A world whose publisher is the insider: which of its neighbours asked it, and when."""
    people = make_population(500, degree, 0.0, 0.0, seed)
    epoch = next(run_epochs(people, MeshPolicy(), 1))
    beside = people.graph.neighbours(people.publisher)
    return people, epoch, epoch.mesh.parent[beside] == people.publisher, subscription_delays(epoch)[beside]


def reads(people: Population) -> NDArray[np.bool_]:
    mask = np.zeros(people.graph.nodes, np.bool_)
    mask[people.subscribers] = True
    return mask


def told(graph: Graph, insider: int, origin: int) -> NDArray[np.bool_]:
    """Mask of the insider's neighbours that are nearest to an origin, by distances from there."""
    far, _ = find_branches(graph, origin)
    beside = far[graph.neighbours(insider)]
    mask: NDArray[np.bool_] = beside == beside.min()
    return mask


def test_paths_enter_by_the_nearer_neighbours() -> None:
    distance, ways = find_branches(FORK, 0)
    assert distance.tolist() == [0, 1, 1, 2, 3, 2]
    assert ways.tolist() == [[0, 0], [1, 0], [0, 1], [0.5, 0.5], [0.5, 0.5], [1, 0]]


def test_a_branch_without_a_subscription_is_excluded() -> None:
    found = score_branch_subscribers(FORK, 0, np.array([False, True]), 0.2)
    assert found[1] == found[5] == 0
    # Those who may come in by either are half as suspect as who comes in by this one alone.
    assert found[2] > found[3] == found[4] > 0


def test_a_branch_of_one_tells_all() -> None:
    alone = from_edges(3, [0, 0], [1, 2])
    assert score_branch_subscribers(alone, 0, np.array([True, False]), 0.1) == pytest.approx([0, 1, 0], abs=1e-9)


def test_the_delay_of_an_answer_tells_the_depth_of_the_nearest_subscriber() -> None:
    found = score_branch_subscribers(FORK, 0, np.array([True, False]), 0.2, np.array([2, -1], np.int16))
    assert found[1] == 0
    assert found[5] > found[3] > found[4] > 0
    assert score_branch_subscribers(FORK, 0, np.array([True, False]), 0.2, np.array([0, -1], np.int16))[
        1
    ] == pytest.approx(1)


def test_a_publishing_insider_finds_subscribers_and_more_of_them_by_timing() -> None:
    """The positive control."""
    plain, timed = [], []
    for seed in range(20):
        people, _, asked, delay = hosted(seed)
        others, labels = np.arange(500) != people.publisher, reads(people)
        plain.append(auc(score_branch_subscribers(people.graph, people.publisher, asked, 0.1)[others], labels[others]))
        timed.append(
            auc(score_branch_subscribers(people.graph, people.publisher, asked, 0.1, delay)[others], labels[others])
        )
    assert 0.5 < np.mean(plain) < np.mean(timed)


def test_no_subscriber_is_excluded_and_no_set_is_smaller_than_a_node_and_its_children() -> None:
    """P0 4.7: the branch that a reader is in holds all who hang on it, so at least |N-| + 1."""
    for seed in range(10):
        people, epoch, asked, delay = hosted(seed, 4)
        found = score_branch_subscribers(people.graph, people.publisher, asked, 0.1)
        timed = score_branch_subscribers(people.graph, people.publisher, asked, 0.1, delay)
        assert min(found[people.subscribers].min(), timed[people.subscribers].min()) > 0
        _, ways = find_branches(people.graph, people.publisher)
        offsets, _ = epoch.mesh.children
        for reader in people.subscribers:
            entered = ways[:, asked][:, (ways[reader] > 0)[asked]]
            assert np.count_nonzero(entered.any(axis=1)) >= offsets[reader + 1] - offsets[reader] + 1


def test_its_probabilities_are_calibrated() -> None:
    """The planted fault: who takes the share of readers for three times what it is, is found out."""
    said: dict[float, list[NDArray[np.float64]]] = {0.1: [], 0.3: []}
    labels = []
    for seed in range(30):
        people, _, asked, delay = hosted(seed)
        for rate, found in said.items():
            found.append(
                np.delete(
                    score_branch_subscribers(people.graph, people.publisher, asked, rate, delay), people.publisher
                )
            )
        labels.append(np.delete(reads(people), people.publisher))
    right, wrong = (measure_calibration(np.concatenate(found), np.concatenate(labels), 1) for found in said.values())
    assert right.error < 0.02
    assert wrong.error > 0.05


def test_shuffled_labels_are_not_found() -> None:
    people, _, asked, delay = hosted(1)
    others = np.arange(500) != people.publisher
    found = score_branch_subscribers(people.graph, people.publisher, asked, 0.1, delay)
    assert tells_nothing_of_shuffled_labels(found[others], reads(people)[others])


def test_the_publisher_is_in_its_branch_and_among_those_with_the_same_nearest() -> None:
    """The positive control of the subscribing insider; who looks at all chain values has fewer to search."""
    sizes = []
    for seed in range(20):
        people = make_population(500, 4, 0.0, 0.0, seed)
        insider = int(people.subscribers[0])
        mask = told(people.graph, insider, people.publisher)
        wide = score_first_branch(people.graph, insider, int(np.flatnonzero(mask)[0]))
        sharp = score_nearest_branches(people.graph, insider, mask)
        assert wide[people.publisher] > 0 < sharp[people.publisher]
        assert wide.sum() == pytest.approx(1) == sharp.sum()
        sizes.append((np.count_nonzero(wide), np.count_nonzero(sharp)))
    wide_mean, sharp_mean = np.mean(sizes, axis=0)
    assert 1 < sharp_mean < wide_mean < 250


def test_a_publisher_elsewhere_is_excluded() -> None:
    assert np.flatnonzero(score_first_branch(FORK, 0, 1)).tolist() == [2, 3, 4]
    assert np.flatnonzero(score_nearest_branches(FORK, 0, np.array([False, True]))).tolist() == [2]
    assert np.flatnonzero(score_nearest_branches(FORK, 0, np.array([True, True]))).tolist() == [3, 4]
