"""Transitions by numbers are those of the code, and unverified names stay marked."""

from __future__ import annotations

from veilcast.machine import Address
from veilcast.mesh.swap import SwapState
from veilcast.sim.rng import derive_rng
from veilcast.sim.swap_model.memoised_transitions import MemoisedTransitions, SwapDelivery
from veilcast.sim.swap_model.node import TOKEN, ModelNode, NodeState, UnverifiedName, make_tree, sort_names
from veilcast.sim.swap_model.search import list_forgeries
from veilcast.wire.mesh import SwapAnswer, SwapAsk, SwapCommit, SwapVote

PARENTS = {"p": "p", "a": "p", "b": "a", "c": "b"}
GAME = b"game".ljust(16)
A, B, C, P = (Address(name) for name in "abcp")


def reactions() -> tuple[MemoisedTransitions, dict[str, int]]:
    tables = MemoisedTransitions(PARENTS, [GAME], derive_rng(1))
    return tables, {
        name: tables.number_state(place, held) for place, (name, held) in enumerate(make_tree(PARENTS).items())
    }


def test_a_node_holds_what_was_put_into_it() -> None:
    chair = ModelNode("a")
    chair.restore(make_tree(PARENTS)["a"])
    chair.names.next = GAME
    chair.swaps.start(TOKEN, B, 0)
    held = chair.snapshot()
    assert held.bound is not None
    assert (held.bound.state, held.bound.missing) == (SwapState.ASKING, (B, P))
    other = ModelNode("a")
    other.restore(held)
    assert other.snapshot() == held


def test_a_reaction_is_looked_up_the_second_time() -> None:
    tables, held = reactions()
    step = tables.begin(held["a"], GAME, "b")
    assert [str(tables.messages[post]) for post in step.messages] == [
        "SwapAsk(game, (p), ()) from a to b",
        "SwapLock(game, true) from a to p",
    ]
    first = tables.deliver(held["b"], step.messages[0])
    assert tables.deliver(held["b"], step.messages[0]) is first
    assert tables.is_bound[first.state]
    assert tables.expire(first.state).ended


def test_the_order_of_names_does_not_matter() -> None:
    tables, _ = reactions()
    one, two = (SwapDelivery(B, A, SwapAnswer(GAME, True, names)) for names in ((C, P), (P, C)))
    assert tables.number_message(one) == tables.number_message(two)
    assert tables.number_state(0, NodeState(sort_names("ab"), ())) == tables.number_state(
        0, NodeState(sort_names("ba"), ())
    )


def test_a_crashed_node_does_nothing_more_but_keeps_its_place_in_the_tables() -> None:
    tables, held = reactions()
    inert = tables.crash(held["a"]).state
    assert tables.states[inert].inward == (P,)
    assert tables.begin(inert, GAME, "b").state == inert
    assert tables.over[inert] & tables.refused_after[tables.number_message(SwapDelivery(B, A, SwapVote(GAME, True)))]


def test_who_follows_a_liar_has_its_parent_by_hearsay_and_hands_it_on_as_such() -> None:
    tables, held = reactions()
    step = tables.react(held["b"], SwapDelivery(A, B, SwapCommit(GAME, TOKEN, Address(UnverifiedName("p")))))
    (parent,) = tables.states[step.state].inward
    assert parent == "p"
    assert isinstance(parent, UnverifiedName)
    assert tables.misled[step.state]
    (post,) = tables.begin(step.state, GAME, "c").messages[:1]
    message = tables.messages[post].message
    assert isinstance(message, SwapAsk)
    assert isinstance(message.inward[0], UnverifiedName)
    assert str(tables.messages[post]) == "SwapAsk(game, (p?), ()) from b to c"
    assert tables.number_state(1, NodeState((P,), ())) != tables.number_state(1, NodeState((parent,), ()))


def test_a_liar_names_others_by_hearsay_only_and_speaks_of_every_game() -> None:
    said = list_forgeries("a", PARENTS, [GAME, bytes(16)])
    assert {message.game for message in said} == {GAME, bytes(16)}
    successors = [message.successor for message in said if isinstance(message, SwapCommit)]
    assert all(isinstance(name, UnverifiedName) for name in successors if name != "a")
    assert sorted(map(str, dict.fromkeys(successors))) == ["a", "b", "c", "ghost", "p"]
