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
    parlour = SwapTree(tree)
    v1, v2 = parlour.chairs[Address(tree[child])], parlour.chairs[Address(child)]
    before = parlour.inward_edges()
    cost = 3 * len(v1.inward_names) + len(v2.inward_names) + 3 * len(v1.outward_names) + len(v2.outward_names)
    assert parlour.start(v1.name, child)
    parlour.play_out(rng)
    exchanged = {v1.name: v2.name, v2.name: v1.name}
    renamed = sorted((exchanged.get(Address(u), u), exchanged.get(Address(v), v)) for u, v in before)
    assert parlour.inward_edges() == parlour.outward_edges() == renamed
    assert len(parlour.sent) == cost
    assert parlour.locked() == []


def test_the_messages_of_a_swap_by_kind() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.play_out()
    kinds = Counter(type(message) for message in parlour.sent)
    # v1 has p, w and v2 next to it, v2 has v1 and c.
    assert kinds == {SwapAsk: 1, SwapAnswer: 1, SwapLock: 2, SwapVote: 2, SwapCommit: 3 + 2}


@given(st.randoms(use_true_random=False), st.integers(4, 12), st.integers(2, 8))
def test_games_that_meet_end_in_a_tree_of_the_same_shape_in_any_order(rng: Random, nodes: int, games: int) -> None:
    parlour = SwapTree(random_tree(rng, nodes))
    degrees = sorted(Counter(parent for parent, _ in parlour.inward_edges()).values())
    for _ in range(games):
        starter = rng.choice([chair for chair in parlour.chairs.values() if chair.outward_names])
        parlour.start(starter.name, rng.choice(starter.outward_names))
        for _ in range(rng.randrange(6)):
            if parlour.post:
                parlour.deliver(0)
    parlour.play_out(rng)
    parlour.check_parents()
    assert parlour.inward_edges() == parlour.outward_edges()
    assert sorted(Counter(parent for parent, _ in parlour.inward_edges()).values()) == degrees
    assert parlour.locked() == []


def test_of_two_games_that_need_the_same_node_one_is_given_up() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.start("c", "d")
    parlour.play_out()
    played = {name: chair.swaps.completed for name, chair in parlour.chairs.items() if chair.swaps.completed}
    assert played in ({"v1": 1}, {"c": 1})
    parlour.check_parents()


@given(st.randoms(use_true_random=False), st.sampled_from(list(FAMILY)), st.integers(0, 14))
def test_whoever_crashes_at_any_moment_all_are_released_and_the_rest_hangs_together(
    rng: Random, victim: str, step: int
) -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    while parlour.post and step:
        step -= 1
        parlour.deliver(rng.randrange(len(parlour.post)))
        parlour.check_parents()
    parlour.post = [post for post in parlour.post if post[0] != victim]
    while parlour.post:
        if parlour.post[0][1] == victim:
            parlour.post.pop(0)
        else:
            parlour.deliver(0)
        parlour.check_parents()
    parlour.expire_leases()
    assert parlour.locked() == []
    parlour.check_parents()


@pytest.mark.parametrize(
    ("name", "state"),
    [("v1", SwapState.ASKING), ("v1", SwapState.DECIDED), ("v2", SwapState.AGREED), ("p", SwapState.HELD)],
)
def test_whoever_loses_the_partner_is_free_at_once_in_each_state(name: str, state: SwapState) -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    while name not in parlour.locked() or game_of(parlour, name).state is not state:
        parlour.deliver(0)
    parlour.chairs[Address(name)].swaps.on_neighbour_lost(game_of(parlour, name).partner)
    assert name not in parlour.locked()


def test_a_liar_that_votes_for_everything_and_vanishes_holds_nobody_longer_than_a_lease() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.post = [post for post in parlour.post if post[1] != "v2"]
    parlour.play_out()
    swaps = parlour.chairs[Address("v1")].swaps
    swaps.on_message(SwapAnswer(game_of(parlour, "v1").name, True, ("ghost",)), Address("v2"), parlour.now)
    parlour.post = []  # It was told to go, and says nothing more.
    assert sorted(parlour.locked()) == ["p", "v1", "w"]
    parlour.expire_leases()
    assert parlour.locked() == []
    assert parlour.inward_edges() == parlour.outward_edges() == SwapTree(FAMILY).inward_edges()


def test_a_liar_that_plays_by_the_rules_comes_to_stand_above_its_parent_and_may_then_be_silent() -> None:
    """A limitation: a swap puts a participant above nodes that were beside and above it."""
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.play_out()
    above = {child: parent for parent, child in parlour.inward_edges()}
    assert {above[name] for name in ("v1", "w")} == {"v2"}
    assert {SwapTree(FAMILY).chairs[Address(name)].inward_names for name in ("v1", "w")} == {("p",), ("v1",)}


def test_what_is_not_in_the_table_is_refused_and_changes_nothing() -> None:
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
        parlour = SwapTree(FAMILY)
        parlour.start("v1", "v2")
        while name not in parlour.locked() or game_of(parlour, name).state is not state:
            parlour.deliver(0)
        game = game_of(parlour, name)
        for message in every_message(game.name):
            if (state, type(message)) in legal:
                continue
            with pytest.raises(StaleError):
                parlour.chairs[Address(name)].swaps.on_message(message, game.partner, parlour.now)
            assert game_of(parlour, name) is game
            assert game.state is state


def test_only_those_who_take_part_are_heard() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    v1, name = parlour.chairs[Address("v1")].swaps, game_of(parlour, "v1").name
    with pytest.raises(StaleError):
        v1.on_message(SwapVote(name, True), Address("d"), parlour.now)
    v1.on_message(SwapVote(name, True), Address("v2"), parlour.now)  # The child owes an answer, not a vote.
    assert "v1" not in parlour.locked()


def test_nobody_can_spoil_a_game_of_others_by_using_its_name_first() -> None:
    """e, a child of c, has heard the name. c, which the players need not ask, still follows its parent."""
    parlour = SwapTree({**FAMILY, "e": "c"})
    parlour.start("v1", "v2")
    name, c = game_of(parlour, "v1").name, parlour.chairs[Address("c")]
    c.swaps.on_message(SwapLock(name, TOKEN, True), Address("e"), parlour.now)
    assert "c" in parlour.locked()
    parlour.play_out()
    assert c.inward_names == ("v1",)
    c.swaps.on_message(SwapAbort(name), Address("e"), parlour.now)
    parlour = SwapTree({**FAMILY, "e": "c"})
    c = parlour.chairs[Address("c")]
    c.swaps.on_message(SwapLock(name, TOKEN, True), Address("e"), parlour.now)
    c.swaps.on_message(SwapAbort(name), Address("e"), parlour.now)
    parlour.start("v1", "v2")
    parlour.play_out()
    assert c.inward_names == ("v1",)


def test_a_game_is_played_once_however_often_its_messages_come() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    copies = []
    while parlour.post:
        copies.append(parlour.post[0])
        parlour.deliver(0)
    edges = parlour.inward_edges()
    parlour.post = copies
    parlour.play_out()
    parlour.expire_leases()
    assert parlour.inward_edges() == parlour.outward_edges() == edges


def test_a_node_with_two_parents_does_not_leave_its_place() -> None:
    parlour = SwapTree(FAMILY)
    parlour.chairs[Address("v2")].inward_names += (Address("other"),)
    parlour.start("v1", "v2")
    parlour.play_out()
    assert parlour.chairs[Address("v1")].swaps.completed == 0
    assert parlour.locked() == []


@pytest.mark.parametrize("names", [("n" * 17,), tuple(f"n{i}" for i in range(17)), ("twice", "twice"), ("w",)])
def test_names_that_could_not_be_handed_on_or_are_next_to_us_already_end_the_game(names: tuple[str, ...]) -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    swaps = parlour.chairs[Address("v1")].swaps
    swaps.on_message(SwapAnswer(game_of(parlour, "v1").name, True, names), Address("v2"), parlour.now)
    assert "v1" not in parlour.locked()
    c = parlour.chairs[Address("c")]
    c.swaps.on_message(SwapCommit(bytes(16), TOKEN, "n" * 17), Address("v2"), parlour.now)
    assert c.inward_names == ("v2",)


def test_who_came_during_a_game_stays_with_whom_it_came_to() -> None:
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.chairs[Address("v1")].outward_names += (Address("late"),)
    parlour.play_out()
    assert parlour.chairs[Address("v1")].outward_names == ("late", "c")
    assert parlour.chairs[Address("v2")].outward_names == ("w", "v1")


def test_a_forgotten_release_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swaps, "expire", lambda self, now: None)
    parlour = SwapTree(FAMILY)
    parlour.start("v1", "v2")
    parlour.deliver(0)
    parlour.expire_leases()
    assert parlour.locked() != []


def every_message(name: bytes) -> list[SwapMessage]:
    return [
        SwapAsk(name, TOKEN, (), ()),
        SwapAnswer(name, True, ()),
        SwapLock(name, TOKEN, True),
        SwapVote(name, True),
        SwapCommit(name, TOKEN, "x"),
        SwapAbort(name),
    ]
