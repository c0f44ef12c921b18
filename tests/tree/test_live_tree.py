"""A tree that changes while it stands: every path leads home, and all nodes concerned get instructions."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.tree.instruction_bundles import Recipient
from veilcast.tree.live_tree import LiveTree
from veilcast.tree.routing_table import entry_name

HOME, END = b"h" * 16, b"e" * 16


def recipient(number: int) -> Recipient:
    return Recipient(number.to_bytes(16, "big"), bytes(32))


def tree_of(nodes: int, guards: int, seed: bytes = b"s") -> LiveTree:
    chain = [recipient(number) for number in range(guards)]
    return LiveTree(Secret(seed), [recipient(number) for number in range(nodes)], HOME, END, chain, 3, Secret(seed))


changes = st.lists(
    st.one_of(
        st.tuples(st.just("bypass"), st.integers(0, 60)),
        st.tuples(st.just("replace"), st.integers(0, 2)),
        st.tuples(st.just("add"), st.just(0)),
    ),
    max_size=12,
)


@given(st.integers(3, 60), changes, st.integers(0, 100))
def test_after_any_changes_every_path_leads_home_through_instructed_nodes(
    nodes: int, steps: list[tuple[str, int]], seed: int
) -> None:
    """The test keeps the last instruction of each node; following these from any stop leads to the delivery tag."""
    tree, rng = tree_of(nodes, min(3, nodes)), Random(seed)
    kept = {tree.entry_at(stop): tree.instruction(stop) for stop in (*tree.chain, *tree.stops)}
    at = {tree.entry_at(stop): tree.node(stop) for stop in (*tree.chain, *tree.stops)}
    fresh, gone = 1000, set()
    for what, which in steps:
        if what == "bypass":
            told = tree.bypass(tree.node(which % len(tree)))
            gone.add(which % len(tree))
        elif what == "replace":
            fresh += 1
            told = tree.replace_guard(tree.chain[which % len(tree.chain)], recipient(fresh))
        else:
            fresh += 1
            away = {tree.node(each) for each in gone}
            told = [tree.add(recipient(fresh), rng, away.__contains__)]
        for stop in (*tree.chain, *tree.stops):
            assert sorted(tree.children(stop)) == sorted(
                e for e in (*tree.chain, *tree.stops) if tree.next_stop(e) == stop
            )
        for stop in told:
            kept[tree.entry_at(stop)] = tree.instruction(stop)
            at[tree.entry_at(stop)] = tree.node(stop)
    for stop in tree.stops:
        name, node, steps_up = tree.entry_at(stop), tree.node(stop), 0
        way = [node]
        while name != END:
            told_last = kept[name]
            assert at[name] == node
            node, name, steps_up = told_last.parent, told_last.parent_entry, steps_up + 1
            way.append(node)
            assert steps_up <= len(tree) + len(tree.chain)
        assert node == HOME
        assert way[:-1] == [tree.node(each) for each in tree.path(stop)]
        own = {tree.node(each) for each in gone} - {tree.node(each) for each in tree.chain}
        assert not own & set(way[1:])


def test_an_instruction_names_the_parent_s_entry_and_never_its_token() -> None:
    tree = tree_of(20, 3)
    tokens = {tree.instruction(stop).entry for stop in (*tree.chain, *tree.stops)}
    assert len(tokens) == 23
    for stop in (*tree.chain, *tree.stops):
        told = tree.instruction(stop)
        assert told.parent_entry not in tokens
        assert tree.entry_at(stop) == entry_name(told.entry)


def test_a_replaced_guard_does_not_know_its_successors_token() -> None:
    tree = tree_of(20, 3)
    before = tree.instruction(-2).entry
    told = tree.replace_guard(-2, recipient(99))
    assert -2 in told
    assert -3 in told
    assert tree.instruction(-2).entry != before


def test_two_trees_of_one_subscriber_share_no_name() -> None:
    one, other = tree_of(20, 3, b"one"), tree_of(20, 3, b"other")
    names = [{tree.entry_at(stop) for stop in (*tree.chain, *tree.stops)} for tree in (one, other)]
    assert not names[0] & names[1]


def test_groups_have_every_node_once() -> None:
    tree = tree_of(70, 3)
    groups = tree.groups(32)
    assert sorted(stop for group in groups for stop in group) == list(tree.stops)
    assert [len(group) for group in groups] == [32, 32, 6]
