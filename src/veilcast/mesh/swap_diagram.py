"""The diagram of the swap, rendered from its tables: `docs/diagrams/swap.md` is the output of `render_swap_diagram`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from veilcast.mesh.swap import EVENT_TRANSITIONS, OTHER_GAME_RULES, OWN_GAME_RULES, SwapState


def render_swap_diagram() -> str:
    """A page with the states, the transitions, and the legal messages of each state."""
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
