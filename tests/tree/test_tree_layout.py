"""Layouts: a message entering anywhere climbs to the subscriber, and nodes that are not neighbours share no name."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.tree.instruction_bundles import Instruction, NodeId
from veilcast.tree.layout import HardenedLayout, PaperLayout
from veilcast.tree.tree_shape import path_to_root, place_depth

DRAW = random.Random(1).randbytes
NODES = [DRAW(16) for _ in range(300)]
HOME = 7


def hung(n: int, guards: int, secret: bytes = b"a secret", r: int = 3) -> HardenedLayout:
    return HardenedLayout(Secret(secret), NODES[:n], home=NODES[HOME], guards=NODES[20 : 20 + guards], r=r)


def climbed(table: dict[tuple[NodeId, bytes], Instruction], node: NodeId, entry: bytes) -> list[tuple[NodeId, bytes]]:
    """The entries on the path, by the instructions alone, until an entry is unknown."""
    passed = []
    while (node, entry) in table:
        passed.append((node, entry))
        told = table[node, entry]
        node, entry = told.parent, told.parent_entry
    return [*passed, (node, entry)]


def installed(plan: HardenedLayout) -> dict[tuple[NodeId, bytes], Instruction]:
    table = {}
    for number, node in enumerate(plan.nodes):
        told = plan.instruction(number)
        table[node, told.entry] = told
    for link, guard in enumerate(plan.guards):
        told = plan.guard_instruction(link)
        table[guard, told.entry] = told
    assert len(table) == len(plan.nodes) + len(plan.guards), "every entry has a name of its own"
    return table


@given(st.integers(30, 300), st.integers(1, 5), st.binary(min_size=1, max_size=8))
@settings(max_examples=20)
def test_a_message_entering_anywhere_climbs_to_the_subscriber(n: int, guards: int, secret: bytes) -> None:
    plan = hung(n, guards, secret)
    table = installed(plan)
    for number in range(n):
        *passed, end = climbed(table, plan.nodes[number], plan.entry(number))
        assert end == (NODES[HOME], plan.home_entry)
        assert tuple(node for node, _ in passed) == plan.path(number)
        assert len(passed) <= 4 + guards


def test_in_paper_a_message_climbs_to_the_subscriber_at_the_root() -> None:
    plan = PaperLayout(Secret(b"a secret"), NODES, root=HOME, r=3)
    assert plan.place(HOME) == 0
    assert sorted(map(plan.place, range(300))) == list(range(300))
    for number in range(300):
        if number == HOME:
            continue
        node, passed = NODES[number], []
        while node != NODES[HOME]:
            passed.append(node)
            told = plan.instruction(NODES.index(node))
            assert told.entry == told.parent_entry == plan.tree
            node = told.parent
        assert tuple(passed) == plan.path(number)
        assert len(passed) == place_depth(plan.place(number), plan.branching)
    with pytest.raises(LocalError):
        plan.instruction(HOME)


def test_nodes_that_are_not_neighbours_share_no_entry() -> None:
    """Neighbours are parent and child, and two children of one parent."""
    plan = hung(60, 3)
    places = [plan.place(number) for number in range(60)]
    known = [plan.instruction(number) for number in range(60)]
    for one, two in combinations(range(60), 2):
        shared = {known[one].entry, known[one].parent_entry} & {known[two].entry, known[two].parent_entry}
        near = set(path_to_root(places[one], plan.branching)[:2]) & set(path_to_root(places[two], plan.branching)[:2])
        assert bool(shared) == bool(near)


def test_a_refresh_keeps_the_guards_and_nothing_else() -> None:
    one, two = (hung(300, 3, secret) for secret in (b"one", b"two"))
    assert one.guards == two.guards
    assert not set(installed(one)) & set(installed(two))
    same = sum(one.instruction(number).parent == two.instruction(number).parent for number in range(300))
    assert same < 30, "one in 37 has the parent that it had, by chance"
    assert sum(one.place(number) == two.place(number) for number in range(300)) < 10


def test_groups_contain_every_node_once_and_do_not_show_depth() -> None:
    """Over 200 trees, the first node of a group has the same depth as any other."""
    depths = []
    for seed in range(200):
        plan = hung(300, 3, bytes((seed, 1)))
        groups = plan.groups(32)
        assert sorted(number for group in groups for number in group) == list(range(300))
        assert {len(group) for group in groups} == {32, 300 % 32}
        depths += [place_depth(plan.place(group[0]), plan.branching) for group in groups]
    everyone = [place_depth(place, plan.branching) for place in range(300)]
    assert abs(sum(depths) / len(depths) - sum(everyone) / 300) < 0.05


def test_a_tree_needs_at_least_one_guard() -> None:
    with pytest.raises(LocalError):
        hung(30, 0)
