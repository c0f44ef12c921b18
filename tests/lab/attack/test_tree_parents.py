"""Parents over refreshes: the root of the paper's trees stands out, and no other node does."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.measure import disclosure_time, ranking
from veilcast.lab.models import tree
from veilcast.lab.models.tree_entries import TreeEntries
from veilcast.lab.models.tree_refreshes import TreePolicy, TreeReaders, watch_refreshes

NODES = 200
Scores = NDArray[np.float64]


def village(seed: int, share: float = 0.1) -> TreeReaders:
    drawn = tree.draw_nodes(NODES, 1 + round(share * NODES), seed, "village")
    return TreeReaders(NODES, np.sort(drawn[1:]), drawn[:1], np.zeros(1, np.int64), seed)


def rank(scores: Scores, people: TreeReaders, target: int) -> float:
    honest = people.honest
    return ranking.auc(scores[honest], (np.arange(NODES) == target)[honest])


def every(entries: TreeEntries, people: TreeReaders) -> dict[str, Scores]:
    branching = tree.least_branching(NODES, 3)
    return {
        "counts": tree_nodes.score_counts(entries, NODES),
        "lasting": tree_nodes.score_lasting(entries, NODES),
        "depth": tree_nodes.score_depth(entries, NODES),
        "volume": tree_nodes.score_volume(entries, NODES),
        "likelihood": tree_nodes.score_likelihood(entries, NODES, people.insiders.size, branching),
    }


def test_the_papers_root_is_first_after_some_refreshes_by_every_score() -> None:
    """The positive control."""
    for seed in range(3):
        people = village(seed)
        target = int(people.readers[0])
        for attack, scores in every(watch_refreshes(people, TreePolicy("paper"), 200, 50), people).items():
            assert disclosure_time.is_first(np.where(people.honest, scores, -np.inf), target), attack


def test_another_node_in_the_place_of_the_subscriber_does_not_stand_out() -> None:
    """The null control."""
    aucs: dict[str, list[float]] = {}
    for seed in range(40):
        people = village(seed)
        others = np.flatnonzero(people.honest & (np.arange(NODES) != people.readers[0]))
        for attack, scores in every(watch_refreshes(people, TreePolicy("paper"), 20, 50), people).items():
            aucs.setdefault(attack, []).append(rank(scores, people, int(others[seed])))
    for attack, found in aucs.items():
        assert np.mean(found) == pytest.approx(0.5, abs=0.15), attack


def test_of_hardened_trees_the_first_guard_stands_out_and_the_subscriber_does_not() -> None:
    ranks, guards = [], []
    for seed in range(12):
        people = village(seed)
        entries = watch_refreshes(people, TreePolicy(), 200, 50)
        near = entries.parent[entries.hops_behind_root == 0]
        scores = every(entries, people)
        if people.honest[near].all() and not (entries.hops_behind_root > 0).any():
            guards.append(rank(scores["counts"], people, int(near[0])))
            ranks.append(rank(scores["counts"], people, int(people.readers[0])))
    assert len(ranks) > 3
    assert np.mean(guards) > 0.95
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.25)


def test_likelihood_needs_fewer_refreshes_than_counting() -> None:
    found: dict[str, list[float]] = {"counts": [], "likelihood": []}
    for seed in range(30):
        people = village(seed)
        scores = every(watch_refreshes(people, TreePolicy("paper"), 6, 1), people)
        for attack, gathered in found.items():
            target = int(people.readers[0])
            gathered.append(disclosure_time.is_first(np.where(people.honest, scores[attack], -np.inf), target))
    assert np.mean(found["likelihood"]) >= np.mean(found["counts"])


def test_lengths_that_are_all_the_same_name_all_parents_alike() -> None:
    entries = watch_refreshes(village(1), TreePolicy(), 20, 50)
    assert set(np.unique(tree_nodes.score_depth(entries, NODES))) <= {0.0, 4096.0}


def test_lasting_counts_repeated_instructions_to_one_node() -> None:
    numbers = np.array
    zero = np.zeros(4, np.int64)
    entries = TreeEntries(numbers([0, 1, 2, 2]), numbers([7, 7, 7, 8]), numbers([3, 3, 4, 4]), *[zero] * 5)
    assert tree_nodes.score_counts(entries, 5).tolist() == [0, 0, 0, 2, 2]
    assert tree_nodes.score_lasting(entries, 5).tolist() == [0, 0, 0, 2, 1]


def test_standardised_counts_are_in_deviations() -> None:
    assert tree_nodes.standardise_counts(np.array([4.0, 4.0, 4.0, 8.0, 0.0])).tolist() == [0, 0, 0, 2, -2]
