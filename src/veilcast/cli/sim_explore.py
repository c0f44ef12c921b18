"""`veilcast sim explore` and `sim diagram`: every way that a few shell games can go, and a diagram of their rules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.grammar.local import EXPLORED
from veilcast.cli.input_checks import check_range
from veilcast.mesh.swap import EVENT_TRANSITIONS, OTHER_GAME_RULES, OWN_GAME_RULES, SwapState
from veilcast.sim.swap_model.search import GAMES, SearchPlan, SearchResult
from veilcast.sim.swap_model.search import explore_swaps as explore


def explore_swaps(arguments: argparse.Namespace, _: Context) -> Report:
    for option, _default, _about in EXPLORED:
        least, most = _BOUNDS.get(option, (0, _FAULTS_MAX))
        check_range(f"--{option}", getattr(arguments, option.replace("-", "_")), least, most)
    if arguments.lies is not None:
        check_range("--lies", arguments.lies, 1, _FAULTS_MAX)
    plan = SearchPlan(
        games=arguments.games,
        losses=arguments.losses,
        copies=arguments.copies,
        crashes=arguments.crashes,
        liar=arguments.liar or "",
        lies=arguments.lies or int(bool(arguments.liar)),
        late=arguments.late,
        states_max=arguments.states_max,
    )
    with Console(file=sys.stderr).status("exploring") as status:
        result = explore(plan, lambda states, depth: status.update(f"{states:,} states, depth {depth}"))
    data = {**result._asdict(), "steps": list(result.steps), "omission": result.collision_probability}
    return Report(data, _lines(result), FAILED_CHECK if result.fault else 0)


def render_swap_diagram() -> str:
    """`docs/diagrams/swap.md`, rendered from the tables of the swap: a page with the states, the transitions, and the
    legal messages of each state."""
    arrows: dict[tuple[SwapState, SwapState], list[str]] = {}
    for state, event, leads in _ways():
        for end in leads:
            arrows.setdefault((state, end), []).append(event)
    drawn = [
        f"    {start.name} --> {end.name}: {', '.join(events)}"
        for (start, end), events in arrows.items()
        if start != end
    ]
    rows = [f"| {state.name} | {event} | {', '.join(end.name for end in leads)} |" for state, event, leads in _ways()]
    return "\n".join([_OPENING, *drawn, _MIDDLE, *rows, ""])


def _lines(result: SearchResult) -> list[str]:
    extent = "all there are" if result.exhausted else "not all there are"
    lines = [f"{result.states:,} states ({extent}), depth {result.depth}"]
    if result.fault:
        return [*lines, f"fault: {result.fault}, after", *(f"  {step}" for step in result.steps)]
    return [*lines, f"no fault; a state was overlooked with probability {result.collision_probability:.0e} at most"]


def diagram(_: argparse.Namespace, __: Context) -> Report:
    page = render_swap_diagram()
    return Report({"swap": page}, page.splitlines())


def _ways() -> Iterator[tuple[SwapState, str, tuple[SwapState, ...]]]:
    """State by state: what may happen, and the states that follow."""
    for state in SwapState:
        yield from ((state, event, leads) for (start, event), leads in EVENT_TRANSITIONS.items() if start is state)
        for (start, kind), rule in OWN_GAME_RULES.items():
            if start is state:
                yield state, kind.__name__, rule.leads
        for (start, kind), rule in OTHER_GAME_RULES.items():
            if start is state:
                yield state, f"{kind.__name__} of another game", rule.leads


_BOUNDS: Final = {"games": (0, len(GAMES)), "states-max": (1, 1_000_000_000)}
_FAULTS_MAX: Final = 8
_OPENING: Final = """# The states of a node in a swap

Drawn by `veilcast sim diagram` from the tables of `src/veilcast/mesh/swap.py`; a test compares them. The player who
begins goes through ASKING and DECIDED, the child it changes places with through AGREED, and those next to it through
HELD. Whatever is not in the table is refused, and changes nothing.

```mermaid
stateDiagram-v2
    [*] --> FREE"""
_MIDDLE: Final = """```

| state | what happens | leads to |
|---|---|---|"""
