"""The search over the shell game: its findings in the present code, and in code with a planted fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.plain_swap_search import Tables, plain_search, tables_of
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.mesh import swap
from veilcast.mesh.swap import SwapGame, SwapRule, Swaps, SwapState
from veilcast.sim.swap_model.search import TREE, SearchPlan, _State, _SwapSearch, explore_swaps
from veilcast.wire.base import Message
from veilcast.wire.mesh import SwapAsk, SwapCommit, SwapLock

ALL_FAULTS: dict[str, Any] = {"losses": 2, "copies": 1, "crashes": 1}


class Noting(_SwapSearch):
    """Keeps what it meets."""

    def __init__(self, plan: SearchPlan) -> None:
        super().__init__(plan, lambda states, depth: None)
        self.met: set[Tables] = set()
        self.expanded: list[_State] = []

    def _expand(self, state: _State) -> None:
        self.met.add(tables_of(tuple(self._tables.states[node] for node in state[1])))
        self.expanded.append(state)
        super()._expand(state)


# --- the code as it is


@pytest.mark.parametrize(
    ("plan", "states", "depth"),
    [
        (SearchPlan(games=1, **ALL_FAULTS), 1_000, 12),
        (SearchPlan(games=2, late=True, copies=1), 50_000, 20),
        (SearchPlan(games=3), 98_000, 26),
    ],
    ids=["one game, everything fails", "two games, leases end at any time", "three games"],
)
def test_no_way_that_games_can_go_tears_the_tree_or_leaves_a_lock(plan: SearchPlan, states: int, depth: int) -> None:
    result = explore_swaps(plan)
    assert (result.exhausted, result.fault) == (True, "")
    assert result.states >= states
    assert result.depth >= depth


@pytest.mark.parametrize("liar", ["a", "b", "d", "e"])
def test_whatever_a_liar_says_honest_nodes_hang_together_but_for_its_word(liar: str) -> None:
    result = explore_swaps(SearchPlan(games=2, liar=liar, lies=1))
    assert (result.exhausted, result.fault) == (True, "")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "plan",
    [
        SearchPlan(games=2, **ALL_FAULTS),
        SearchPlan(games=3, losses=1),
        SearchPlan(games=3, late=True),
        *(SearchPlan(games=2, liar=liar, lies=2) for liar in TREE if liar != "c"),
    ],
    ids=str,
)
def test_no_way_tears_the_tree_in_the_larger_plans(plan: SearchPlan) -> None:
    result = explore_swaps(plan)
    assert (result.exhausted, result.fault) == (True, "")


@pytest.mark.parametrize(
    "plan",
    [SearchPlan(games=1, **ALL_FAULTS), SearchPlan(games=2), SearchPlan(games=1, late=True, copies=1)],
    ids=["one game, everything fails", "two games", "late"],
)
def test_the_short_cuts_of_the_search_hide_nothing(plan: SearchPlan) -> None:
    states, tables = plain_search(plan)
    quick = Noting(plan)
    assert quick.run().states < states
    assert quick.met == tables


def test_when_leases_end_at_any_time_losses_and_crashes_add_nothing() -> None:
    late = Noting(SearchPlan(games=2, late=True))
    late.run()
    _, tables = plain_search(SearchPlan(games=1, **ALL_FAULTS))
    assert tables <= late.met
    faulty = Noting(SearchPlan(games=2, losses=1, crashes=1))
    faulty.run()
    assert faulty.met <= late.met


def test_a_fingerprint_is_the_sum_of_the_keys_of_all_that_a_state_is_made_of() -> None:
    search = Noting(SearchPlan(games=2, losses=1, liar="d", lies=1))
    search.run()
    tables = search._tables
    for fingerprint, nodes, bag, games, _ in search.expanded:
        keys = [tables.state_keys[node] for node in nodes] + [tables.message_keys[post] for post in bag]
        assert fingerprint == (sum(keys) + search._game_key[games]) % 2**64


def test_a_search_ends_at_its_bound_and_says_so() -> None:
    told: list[int] = []
    result = explore_swaps(SearchPlan(games=3, states_max=5_000), lambda states, depth: told.append(states))
    assert (result.states, result.exhausted, result.fault) == (5_000, False, "")
    assert told == [0]
    assert result.collision_probability < 1e-11


@pytest.mark.parametrize(
    "wrong", [{"games": 4}, {"losses": -1}, {"liar": "x", "lies": 1}, {"liar": "a"}, {"lies": 1}, {"states_max": 0}]
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SearchPlan(**wrong)


# --- planted faults


def moved_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """v1 takes v2's place when it tells it to go."""
    count = Swaps._count

    def hasty(self: Swaps, game: SwapGame, source: Address, agreed: bool, now: int) -> None:
        count(self, game, source, agreed, now)
        if game.state is SwapState.DECIDED:
            self._on_gone(game, SwapCommit(game.name, game.token, game.partner), game.partner, now)

    monkeypatch.setattr(Swaps, "_count", hasty)


def committed_without_all_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Swaps._count

    def eager(self: Swaps, game: SwapGame, source: Address, agreed: bool, now: int) -> None:
        if agreed and source == game.partner:
            game.awaited_votes.clear()
        count(self, game, source, agreed, now)

    monkeypatch.setattr(Swaps, "_count", eager)


def release_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swaps, "expire", lambda self, now: None)


def locked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is granted to every node that asks, and the one before is forgotten."""
    act = Swaps._on_lock

    def generous(self: Swaps, message: SwapLock, source: Address, now: int) -> None:
        self._games.pop(message.token, None)
        act(self, message, source, now)

    for state in SwapState:
        _replace(monkeypatch, state, SwapLock, generous)


def agreed_while_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    act = Swaps._on_ask

    def generous(self: Swaps, message: SwapAsk, source: Address, now: int) -> None:
        self._games.pop(message.token, None)
        act(self, message, source, now)

    for state in SwapState:
        _replace(monkeypatch, state, SwapAsk, generous)


def edge_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """v2 does not take over the first of v1's children."""
    act = Swaps._on_ask

    def forgetful(self: Swaps, message: SwapAsk, source: Address, now: int) -> None:
        act(self, SwapAsk(message.game, message.token, message.inward, message.outward[1:]), source, now)

    _replace(monkeypatch, SwapState.FREE, SwapAsk, forgetful)


def news_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of v2 does not follow v1."""

    def deaf(self: Swaps, message: SwapCommit, source: Address, now: int) -> None:
        self._remember(message.game, source)

    for state in SwapState:
        _replace(monkeypatch, state, SwapCommit, deaf)


def news_known_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_news", lambda game, source: game + b"p")


def names_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a game that is over, only what is told of it is known, not its name."""
    monkeypatch.setattr(Swaps, "_remember", lambda self, game, source: self._over.add(game + source.encode()))


def parent_believed_in_a_decided_game(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(self: Swaps, message: SwapCommit, source: Address, now: int) -> None:
        Swaps._on_parent_gone(self, message, source, now)
        game, successor = self._games[message.token], Address(message.successor)
        game.inward = tuple(successor if name == source else name for name in game.inward)

    _replace(monkeypatch, SwapState.DECIDED, SwapCommit, trusting)


def _replace(monkeypatch: pytest.MonkeyPatch, state: SwapState, kind: type[Message], act: Callable[..., None]) -> None:
    monkeypatch.setitem(swap.OTHER_GAME_RULES, (state, kind), SwapRule(act, (state,)))


@pytest.mark.parametrize(
    ("plant", "plan", "fault"),
    [
        (moved_too_early, SearchPlan(games=1), "no way leads from"),
        (committed_without_all_votes, SearchPlan(games=1), "does not know"),
        (release_forgotten, SearchPlan(games=1), "outlives its lease"),
        (locked_twice, SearchPlan(games=3), "no way leads from"),
        pytest.param(agreed_while_bound, SearchPlan(games=3), "does not know", marks=pytest.mark.all_only),
        (edge_lost, SearchPlan(games=2), "does not know"),
        (news_not_heard, SearchPlan(games=1), "does not know"),
        (news_known_by_name_alone, SearchPlan(games=1, liar="e", lies=2), "does not know"),
        pytest.param(
            names_used_twice, SearchPlan(games=2, liar="a", lies=2), "does not know", marks=pytest.mark.all_only
        ),
        (parent_believed_in_a_decided_game, SearchPlan(games=1, liar="p", lies=2), "does not know"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], plan: SearchPlan, fault: str
) -> None:
    plant(monkeypatch)
    result = explore_swaps(plan)
    assert fault in result.fault
    assert not result.exhausted
    assert result.steps


def test_the_way_to_a_fault_is_shown_step_by_step_and_is_a_shortest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    moved_too_early(monkeypatch)
    assert explore_swaps(SearchPlan(games=1)).steps == (
        "begins: a with b",
        "delivered: SwapAsk(game 1, (p), ()) from a to b",
        "delivered: SwapLock(game 1, true) from a to p",
        "delivered: SwapAnswer(game 1, true, (c d)) from b to a",
        "delivered: SwapVote(game 1, true) from p to a",
    )
