"""`veilcast sim explore` and `sim diagram`: every way that a few shell games can go, and a diagram of their rules."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from rich.console import Console

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.grammar.local import EXPLORED
from veilcast.cli.input_checks import check_range
from veilcast.mesh.swap_diagram import render_swap_diagram
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


def _lines(result: SearchResult) -> list[str]:
    extent = "all there are" if result.exhausted else "not all there are"
    lines = [f"{result.states:,} states ({extent}), depth {result.depth}"]
    if result.fault:
        return [*lines, f"fault: {result.fault}, after", *(f"  {step}" for step in result.steps)]
    return [*lines, f"no fault; a state was overlooked with probability {result.collision_probability:.0e} at most"]


def diagram(_: argparse.Namespace, __: Context) -> Report:
    page = render_swap_diagram()
    return Report({"swap": page}, page.splitlines())


_BOUNDS: Final = {"games": (0, len(GAMES)), "states-max": (1, 1_000_000_000)}
_FAULTS_MAX: Final = 8
