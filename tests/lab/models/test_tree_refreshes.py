"""What a coalition sees of trees that are drawn anew: what its nodes were told, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.models import tree
from veilcast.lab.models.tree_refreshes import (
    FAN,
    GROUP,
    INSTALL,
    LAYER,
    TreePolicy,
    TreeReaders,
    branch_sizes,
    trace_paths,
    watch_refreshes,
)
from veilcast.tree.config import TreeConfig
from veilcast.wire import geometry

NODES = 120


def village(readers: int = 1, share: float = 0.2, seed: int = 1) -> TreeReaders:
    drawn = tree.draw_nodes(NODES, readers + round(share * NODES), seed, "village")
    return TreeReaders(NODES, np.sort(drawn[readers:]), drawn[:readers], np.arange(readers), seed)


def test_every_insider_is_told_its_parent_in_every_tree() -> None:
    people = village(3)
    entries = watch_refreshes(people, TreePolicy("paper"), 4, 10)
    assert len(entries) == 4 * 3 * people.insiders.size
    for refresh in range(4):
        above = tree.all_parents(tree.subscriber_rooted(NODES, 3, people.readers, 1, "refresh", refresh))
        for topic in range(3):
            told = entries.of_topic(topic).where(entries.of_topic(topic).refresh == refresh)
            assert (told.parent == above[told.observer, topic]).all()
    assert len(entries.before(2)) == 2 * 3 * people.insiders.size


def test_the_papers_bundles_are_as_long_as_branches_are_large_and_hardened_ones_all_the_same() -> None:
    people = village()
    branch = branch_sizes(NODES, tree.least_branching(NODES, 3))
    assert branch[0] == NODES
    assert branch[-1] == 1
    below = watch_refreshes(people, TreePolicy("paper"), 30, 10)
    at_top = below.parent == people.readers[0]
    assert below.size[at_top].min() >= below.size[~at_top].max() < below.size[at_top].max()
    assert set((below.size // LAYER).tolist()) <= set(branch[1:].tolist())
    assert set(watch_refreshes(people, TreePolicy(), 5, 10).size.tolist()) == {INSTALL}
    apart = watch_refreshes(people, TreePolicy(padded=False), 200, 10)
    ordinary = apart.where(apart.hops_behind_root == -1)
    assert abs(np.corrcoef(ordinary.size, ordinary.forwarded)[0, 1]) < 0.05


def test_guards_of_the_coalition_know_the_next_one_and_their_place_in_every_refresh() -> None:
    for seed in range(6):
        people = village(share=0.5, seed=seed)
        told = watch_refreshes(people, TreePolicy(chain=4), 3, 10)
        chained = told.where(told.hops_behind_root > 0)
        assert set(chained.forwarded.tolist()) <= {10}
        assert set(chained.observer.tolist()) <= set(people.insiders.tolist())
        for place in np.unique(chained.hops_behind_root):
            here = chained.where(chained.hops_behind_root == place)
            assert len(here) == 3
            assert np.unique(here.parent).size == 1
            assert (here.parent[0] == people.readers[0]) == (place == 4)


def test_with_a_tail_the_subscriber_stands_behind_any_guard_and_without_it_behind_the_last() -> None:
    places = set()
    for seed in range(60):
        people = village(share=0.9, seed=seed)
        told = watch_refreshes(people, TreePolicy(chain=2, tail=2), 1, 1)
        places |= set(told.hops_behind_root[(told.parent == people.readers[0]) & (told.hops_behind_root > 0)].tolist())
    assert places == {1, 2, 3, 4}


def test_guards_outlast_refreshes_unless_they_leave_or_are_fresh() -> None:
    people = village(share=0.95)
    kept, leaving, fresh = (
        np.unique(told.parent[told.hops_behind_root == 1]).size
        for told in (
            watch_refreshes(people, habit, 40, 1)
            for habit in (TreePolicy(), TreePolicy(turnover=0.1), TreePolicy(kept=False))
        )
    )
    assert kept == 1 < leaving < fresh


def test_all_topics_of_a_subscriber_hang_by_the_same_guards() -> None:
    people = village(share=0.95)._replace(readers=np.array([5, 5]), topics=np.array([0, 1]))
    people = people._replace(insiders=np.setdiff1d(np.arange(NODES), [5]))
    told = watch_refreshes(people, TreePolicy(), 1, 1)
    by_topic = [
        told.of_topic(topic).where(told.of_topic(topic).hops_behind_root > 0).parent.tolist() for topic in (0, 1)
    ]
    assert by_topic[0] == by_topic[1]
    assert len(by_topic[0]) == 3


def test_whoever_stands_at_the_root_hands_on_to_the_chain() -> None:
    people = village(share=0.95)
    told = watch_refreshes(people, TreePolicy(), 20, 1)
    first = told.observer[told.hops_behind_root == 1]
    assert set(told.parent[told.hops_behind_root == 0].tolist()) == set(first.tolist())


def test_a_path_is_owned_if_all_on_it_collude() -> None:
    everybody = village(share=(NODES - 1) / NODES, seed=2)
    for habit in (TreePolicy("paper"), TreePolicy()):
        publication, hop, _, following, owned = trace_paths(everybody, habit, 50)
        assert owned > 0.9
        assert set(following[np.append(np.diff(publication) > 0, True)].tolist()) == {int(everybody.readers[0])}
        assert hop.max() == (2 if habit.profile == "paper" else 6)
    assert trace_paths(village(share=0.0, seed=3)._replace(insiders=np.empty(0, np.int64)), TreePolicy(), 50).owned == 0


def test_groups_and_bundles_are_as_large_as_those_of_real_nodes() -> None:
    usual = TreeConfig()
    assert (usual.group, usual.fan, geometry.INSTALL_BLOCK) == (GROUP, FAN, INSTALL)


def test_no_hardened_tree_hangs_by_nothing() -> None:
    with pytest.raises(ConfigError, match="one guard at least"):
        watch_refreshes(village(), TreePolicy(chain=0), 1, 1)
