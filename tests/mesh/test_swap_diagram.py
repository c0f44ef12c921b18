"""The tables of the swap, and the page rendered from them, against what the code does in a search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from veilcast.cli.sim_explore import render_swap_diagram
from veilcast.machine import Address
from veilcast.mesh.swap import EVENT_TRANSITIONS, OTHER_GAME_RULES, OWN_GAME_RULES, SwapMessage, Swaps, SwapState
from veilcast.sim.swap_model.node import LEASE_US, TOKEN, ModelNode, NodeState
from veilcast.sim.swap_model.search import TREE, SearchPlan, _SwapSearch

PAGE = Path(__file__).parents[2] / "docs" / "diagrams" / "swap.md"


def test_the_page_matches_the_tables() -> None:
    assert PAGE.read_text() == render_swap_diagram(), "veilcast sim diagram > docs/diagrams/swap.md"


def test_the_tables_match_the_code_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run of two games with leases that end at any time, and with a Byzantine node. Refused messages do not
    count."""
    met: dict[tuple[str, SwapState, Any], set[SwapState]] = {}
    received = Swaps.on_message

    def watched(self: Swaps, message: SwapMessage, source: Address, now: int) -> None:
        before, table = (
            state_of(self),
            "own" if any(own(game, message, source) for game in self.active_games()) else "other",
        )
        received(self, message, source, now)
        met.setdefault((table, before, type(message)), set()).add(state_of(self))

    monkeypatch.setattr(Swaps, "on_message", watched)
    plans = (
        SearchPlan(games=2, late=True),
        SearchPlan(games=1, liar="p", lies=2),
        SearchPlan(games=2, liar="e", lies=1),
    )
    holdings = [pair for plan in plans for pair in held_in(plan)]
    for turn, act in TURNS_OF.items():
        for name, held in holdings:
            for other in TREE:
                chair = ModelNode(name)
                chair.restore(held)
                before = state_of(chair.swaps)
                act(chair.swaps, Address(other))
                if (before, turn) in EVENT_TRANSITIONS:
                    met.setdefault(("turn", before, turn), set()).add(state_of(chair.swaps))
                else:
                    assert state_of(chair.swaps) is before
    declared: dict[tuple[str, SwapState, Any], set[SwapState]] = {
        ("own", *key): set(rule.leads) for key, rule in OWN_GAME_RULES.items()
    }
    declared |= {("other", *key): set(rule.leads) for key, rule in OTHER_GAME_RULES.items()}
    declared |= {("turn", *key): set(leads) for key, leads in EVENT_TRANSITIONS.items()}
    assert met == declared


def state_of(swaps: Swaps) -> SwapState:
    return next((game.state for game in swaps.active_games()), SwapState.FREE)


def own(game: Any, message: SwapMessage, source: Address) -> bool:
    return bool(game.name == message.game and game.is_participant(source))


def held_in(plan: SearchPlan) -> list[tuple[str, NodeState]]:
    """The state of all nodes in any state of the search, without crashed and Byzantine ones."""
    search = _SwapSearch(plan, lambda states, depth: None)
    search.run()
    tables = search._tables
    pairs = zip(tables.owners, tables.states, tables.over, strict=True)
    return [(tables.names[place], held) for place, held, over in pairs if over >= 0]


TURNS_OF: dict[str, Callable[[Swaps, Address], object]] = {
    "begins": lambda swaps, name: swaps.start(TOKEN, name, 0),
    "lease ends": lambda swaps, name: swaps.expire(2 * LEASE_US),
    "neighbour lost": lambda swaps, name: swaps.on_neighbour_lost(name),
}
