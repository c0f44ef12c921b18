"""The swap on bare tables: its cost, its effect, and that nothing is lost whichever node fails, and whenever."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.swap_tree import SwapTree, game_of, random_tree
from veilcast.errors import StaleError
from veilcast.machine import Address
from veilcast.mesh import swap
from veilcast.mesh.swap import SwapMessage, Swaps, SwapState
from veilcast.sim.swap_model.node import TOKEN
from veilcast.wire.mesh import SwapAbort, SwapAnswer, SwapAsk, SwapCommit, SwapLock, SwapVote

FAMILY = {"g": "g", "p": "g", "v1": "p", "w": "v1", "v2": "v1", "c": "v2", "d": "c"}
"""v1 and v2 are to change places; p is v1's parent, w its other child, c a child of v2."""


@given(st.randoms(use_true_random=False), st.integers(3, 12))
def test_a_swap_costs_what_the_paper_says_and_exchanges_two_nodes_and_nothing_else(rng: Random, nodes: int) -> None:
    tree = random_tree(rng, nodes)
    child = rng.choice([name for name in tree if name != "n0"])
    swap_tree = SwapTree(tree)
    v1, v2 = swap_tree.chairs[Address(tree[child])], swap_tree.chairs[Address(child)]
    before = swap_tree.inward_edges()
    cost = 3 * len(v1.inward_names) + len(v2.inward_names) + 3 * len(v1.outward_names) + len(v2.outward_names)
    assert swap_tree.start(v1.name, child)
    swap_tree.play_out(rng)
    exchanged = {v1.name: v2.name, v2.name: v1.name}
    renamed = sorted((exchanged.get(Address(u), u), exchanged.get(Address(v), v)) for u, v in before)
    assert swap_tree.inward_edges() == swap_tree.outward_edges() == renamed
    assert len(swap_tree.sent) == cost
    assert swap_tree.locked() == []


def test_the_messages_of_a_swap_by_kind() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.play_out()
    kinds = Counter(type(message) for message in swap_tree.sent)
    # v1 has p, w and v2 next to it, v2 has v1 and c.
    assert kinds == {SwapAsk: 1, SwapAnswer: 1, SwapLock: 2, SwapVote: 2, SwapCommit: 3 + 2}


@given(st.randoms(use_true_random=False), st.integers(4, 12), st.integers(2, 8))
def test_games_that_meet_end_in_a_tree_of_the_same_shape_in_any_order(rng: Random, nodes: int, games: int) -> None:
    swap_tree = SwapTree(random_tree(rng, nodes))
    degrees = sorted(Counter(parent for parent, _ in swap_tree.inward_edges()).values())
    for _ in range(games):
        starter = rng.choice([chair for chair in swap_tree.chairs.values() if chair.outward_names])
        swap_tree.start(starter.name, rng.choice(starter.outward_names))
        for _ in range(rng.randrange(6)):
            if swap_tree.post:
                swap_tree.deliver(0)
    swap_tree.play_out(rng)
    swap_tree.check_parents()
    assert swap_tree.inward_edges() == swap_tree.outward_edges()
    assert sorted(Counter(parent for parent, _ in swap_tree.inward_edges()).values()) == degrees
    assert swap_tree.locked() == []


def test_of_two_games_that_need_the_same_node_one_is_aborted() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.start("c", "d")
    swap_tree.play_out()
    played = {name: chair.swaps.completed for name, chair in swap_tree.chairs.items() if chair.swaps.completed}
    assert played in ({"v1": 1}, {"c": 1})
    swap_tree.check_parents()


@given(st.randoms(use_true_random=False), st.sampled_from(list(FAMILY)), st.integers(0, 14))
def test_after_any_crash_all_locks_are_released_and_the_rest_stays_connected(
    rng: Random, victim: str, step: int
) -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    while swap_tree.post and step:
        step -= 1
        swap_tree.deliver(rng.randrange(len(swap_tree.post)))
        swap_tree.check_parents()
    swap_tree.post = [post for post in swap_tree.post if post[0] != victim]
    while swap_tree.post:
        if swap_tree.post[0][1] == victim:
            swap_tree.post.pop(0)
        else:
            swap_tree.deliver(0)
        swap_tree.check_parents()
    swap_tree.expire_leases()
    assert swap_tree.locked() == []
    swap_tree.check_parents()


@pytest.mark.parametrize(
    ("name", "state"),
    [("v1", SwapState.ASKING), ("v1", SwapState.DECIDED), ("v2", SwapState.AGREED), ("p", SwapState.HELD)],
)
def test_a_node_that_loses_its_partner_is_free_at_once_in_each_state(name: str, state: SwapState) -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    while name not in swap_tree.locked() or game_of(swap_tree, name).state is not state:
        swap_tree.deliver(0)
    swap_tree.chairs[Address(name)].swaps.on_neighbour_lost(game_of(swap_tree, name).partner)
    assert name not in swap_tree.locked()


def test_a_byzantine_node_that_votes_yes_and_vanishes_locks_no_node_longer_than_a_lease() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.post = [post for post in swap_tree.post if post[1] != "v2"]
    swap_tree.play_out()
    swaps = swap_tree.chairs[Address("v1")].swaps
    swaps.on_message(SwapAnswer(game_of(swap_tree, "v1").name, True, ("ghost",)), Address("v2"), swap_tree.now)
    swap_tree.post = []  # It was told to go, and says nothing more.
    assert sorted(swap_tree.locked()) == ["p", "v1", "w"]
    swap_tree.expire_leases()
    assert swap_tree.locked() == []
    assert swap_tree.inward_edges() == swap_tree.outward_edges() == SwapTree(FAMILY).inward_edges()


def test_a_byzantine_node_that_follows_the_rules_can_move_above_its_parent_and_then_be_silent() -> None:
    """A limitation: a swap puts a participant above nodes that were beside and above it."""
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.play_out()
    above = {child: parent for parent, child in swap_tree.inward_edges()}
    assert {above[name] for name in ("v1", "w")} == {"v2"}
    assert {SwapTree(FAMILY).chairs[Address(name)].inward_names for name in ("v1", "w")} == {("p",), ("v1",)}


def test_a_message_that_is_not_in_the_table_is_refused_and_changes_nothing() -> None:
    legal = {(SwapState.ASKING, SwapAnswer), (SwapState.ASKING, SwapVote), (SwapState.DECIDED, SwapCommit)}
    legal |= {
        (SwapState.AGREED, SwapCommit),
        (SwapState.AGREED, SwapAbort),
        (SwapState.HELD, SwapCommit),
        (SwapState.HELD, SwapAbort),
    }
    assert set(swap.OWN_GAME_RULES) == legal
    for name, state in (
        ("v1", SwapState.ASKING),
        ("v1", SwapState.DECIDED),
        ("v2", SwapState.AGREED),
        ("w", SwapState.HELD),
    ):
        swap_tree = SwapTree(FAMILY)
        swap_tree.start("v1", "v2")
        while name not in swap_tree.locked() or game_of(swap_tree, name).state is not state:
            swap_tree.deliver(0)
        game = game_of(swap_tree, name)
        for message in every_message(game.name):
            if (state, type(message)) in legal:
                continue
            with pytest.raises(StaleError):
                swap_tree.chairs[Address(name)].swaps.on_message(message, game.partner, swap_tree.now)
            assert game_of(swap_tree, name) is game
            assert game.state is state


def test_only_participants_are_heard() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    v1, name = swap_tree.chairs[Address("v1")].swaps, game_of(swap_tree, "v1").name
    with pytest.raises(StaleError):
        v1.on_message(SwapVote(name, True), Address("d"), swap_tree.now)
    v1.on_message(SwapVote(name, True), Address("v2"), swap_tree.now)  # The child owes an answer, not a vote.
    assert "v1" not in swap_tree.locked()


def test_no_node_can_spoil_a_game_of_others_by_using_its_name_first() -> None:
    """e, a child of c, has heard the name. c, which the players need not ask, still follows its parent."""
    swap_tree = SwapTree({**FAMILY, "e": "c"})
    swap_tree.start("v1", "v2")
    name, c = game_of(swap_tree, "v1").name, swap_tree.chairs[Address("c")]
    c.swaps.on_message(SwapLock(name, TOKEN, True), Address("e"), swap_tree.now)
    assert "c" in swap_tree.locked()
    swap_tree.play_out()
    assert c.inward_names == ("v1",)
    c.swaps.on_message(SwapAbort(name), Address("e"), swap_tree.now)
    swap_tree = SwapTree({**FAMILY, "e": "c"})
    c = swap_tree.chairs[Address("c")]
    c.swaps.on_message(SwapLock(name, TOKEN, True), Address("e"), swap_tree.now)
    c.swaps.on_message(SwapAbort(name), Address("e"), swap_tree.now)
    swap_tree.start("v1", "v2")
    swap_tree.play_out()
    assert c.inward_names == ("v1",)


def test_a_game_is_played_once_however_often_its_messages_come() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    copies = []
    while swap_tree.post:
        copies.append(swap_tree.post[0])
        swap_tree.deliver(0)
    edges = swap_tree.inward_edges()
    swap_tree.post = copies
    swap_tree.play_out()
    swap_tree.expire_leases()
    assert swap_tree.inward_edges() == swap_tree.outward_edges() == edges


def test_a_node_with_two_parents_does_not_leave_its_place() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.chairs[Address("v2")].inward_names += (Address("other"),)
    swap_tree.start("v1", "v2")
    swap_tree.play_out()
    assert swap_tree.chairs[Address("v1")].swaps.completed == 0
    assert swap_tree.locked() == []


@pytest.mark.parametrize("names", [("n" * 17,), tuple(f"n{i}" for i in range(17)), ("twice", "twice"), ("w",)])
def test_names_that_do_not_fit_or_are_already_adjacent_end_the_game(names: tuple[str, ...]) -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swaps = swap_tree.chairs[Address("v1")].swaps
    swaps.on_message(SwapAnswer(game_of(swap_tree, "v1").name, True, names), Address("v2"), swap_tree.now)
    assert "v1" not in swap_tree.locked()
    c = swap_tree.chairs[Address("c")]
    c.swaps.on_message(SwapCommit(bytes(16), TOKEN, "n" * 17), Address("v2"), swap_tree.now)
    assert c.inward_names == ("v2",)


def test_a_neighbour_that_came_during_a_game_stays_with_the_node_it_came_to() -> None:
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.chairs[Address("v1")].outward_names += (Address("late"),)
    swap_tree.play_out()
    assert swap_tree.chairs[Address("v1")].outward_names == ("late", "c")
    assert swap_tree.chairs[Address("v2")].outward_names == ("w", "v1")


def test_a_forgotten_release_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swaps, "expire", lambda self, now: None)
    swap_tree = SwapTree(FAMILY)
    swap_tree.start("v1", "v2")
    swap_tree.deliver(0)
    swap_tree.expire_leases()
    assert swap_tree.locked() != []


def every_message(name: bytes) -> list[SwapMessage]:
    return [
        SwapAsk(name, TOKEN, (), ()),
        SwapAnswer(name, True, ()),
        SwapLock(name, TOKEN, True),
        SwapVote(name, True),
        SwapCommit(name, TOKEN, "x"),
        SwapAbort(name),
    ]
