"""How long subscribers of trees wait, where all hosts are 10 ms apart and every work has its price."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.models import tree
from veilcast.lab.models.tree_delays import CircuitNetwork, InstallGroups, TreeWork, delivery_times, install_times

NODES, HOP = 60, 10_000
FREE = TreeWork(0, 0, 0, 0, 0)
NOBODY = np.empty((1, 0), np.int64)
FAR = np.where(np.eye(NODES, dtype=bool), 0, HOP).astype(np.int64)


def net(circuit: int = 0) -> CircuitNetwork:
    return CircuitNetwork(FAR, circuit, np.uint64(7))


def rooted(*readers: int) -> tuple[tree.SpanningTrees, tree.Nodes]:
    roots = np.array(readers, np.int64)
    return tree.subscriber_rooted(NODES, 3, roots, 1), roots


def chains(readers: int, guards: int) -> tree.Nodes:
    drawn = [tree.draw_nodes(NODES, NODES, number, "guards")[:guards] for number in range(readers)]
    return np.array(drawn, np.int64)


def grouped(readers: int, guards: int, first_us: int = 0) -> InstallGroups:
    return InstallGroups(
        tree.randomly_rooted(NODES, 3, readers, 1, "groups"), 8, 2, np.full((readers, 8 + guards), first_us)
    )


def test_instructions_go_down_the_papers_tree_hop_by_hop() -> None:
    trees, readers = rooted(5)
    assert install_times(net(), FREE, trees, readers, NOBODY, None).tolist() == [3 * HOP]
    assert install_times(net(), TreeWork(100, 7, 0, 0, 0), trees, readers, NOBODY, None).tolist() == [
        3 * HOP + 59 * 100 + 3 * 7
    ]


def test_every_relay_of_a_circuit_is_a_leg_more_unless_it_is_one_of_the_ends() -> None:
    trees, readers = rooted(5)
    [taken] = install_times(net(6), FREE, trees, readers, NOBODY, None)
    assert 15 * HOP < taken <= 21 * HOP


def test_through_groups_it_takes_as_many_hops_as_a_group_is_deep_and_the_time_over_which_they_are_spread() -> None:
    trees, readers = tree.randomly_rooted(NODES, 3, 1, 1), np.array([5])
    for first in (0, 12_345):
        [taken] = install_times(net(), FREE, trees, readers, chains(1, 3), grouped(1, 3, first))
        assert taken == first + 4 * HOP  # To the first of eight, and three more with a fan of two.


def test_a_publication_goes_to_its_origin_and_up_and_over_all_guards() -> None:
    trees, readers = rooted(5)
    above = tree.all_parents(trees)[:, 0]
    for origin in range(NODES):
        node, hops = origin, 0
        while above[node] >= 0:
            node, hops = int(above[node]), hops + 1
        start, sender = np.array([origin]), np.array([(origin + 1) % NODES])
        assert delivery_times(net(), FREE, trees, readers, NOBODY, start, sender).tolist() == [[(1 + hops) * HOP]]
        guards = np.array([[(origin + at) % NODES for at in (10, 20, 30)]])
        hung = trees._replace(turn=np.zeros(1, np.int64))
        [[taken]] = delivery_times(net(), FREE, hung, readers, guards, start, sender)
        assert (taken // HOP) in range(1 + 1 + 3 - 1, 1 + 3 + 1 + 3 + 1)


def test_every_copy_costs_and_all_wait_for_the_one_before() -> None:
    trees, readers = rooted(*range(20))
    one_by_one = TreeWork(0, 0, 0, 0, 1_000)
    has = delivery_times(
        net(), one_by_one, trees, readers, np.empty((20, 0), np.int64), np.array([40]), np.array([50])
    )[0]
    assert np.unique(has).size == 20
    assert has.max() >= 1_000 * 21 + 2 * HOP


def test_many_publications_share_the_work_of_many_nodes_and_not_of_one() -> None:
    trees, readers = rooted(*range(10))
    work = TreeWork(0, 0, 1_000, 1_000, 0)
    nobody = np.empty((10, 0), np.int64)
    spread, crowded = (
        delivery_times(net(), work, trees, readers, nobody, origin, np.arange(50)).max()
        for origin in (np.arange(50), np.full(50, 55))
    )
    assert crowded > spread
    assert crowded >= 50 * 1_000


def test_all_have_everything() -> None:
    trees, readers = rooted(*range(10))
    assert (delivery_times(net(2), FREE, trees, readers, chains(10, 2), np.arange(30), np.arange(30)) > 0).all()


@pytest.mark.parametrize("guards", [0, 3])
def test_the_same_times_come_of_the_same_seed(guards: int) -> None:
    trees, readers = rooted(*range(4))
    first, second = (
        delivery_times(net(6), TreeWork(1, 2, 3, 4, 5), trees, readers, chains(4, guards), np.arange(9), np.arange(9))
        for _ in range(2)
    )
    assert (first == second).all()
