"""`veilcast sim explore` and `veilcast sim diagram`: every way that a few shell games can go, and their rules drawn."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from rich.console import Console

from veilcast.cli.bounds import within
from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.mesh.diagram import swap_diagram
from veilcast.sim.explore import GAMES, TREE, Plan, Result, explore


def add_verbs(verbs: Any) -> None:
    command = verbs.add_parser(
        "explore",
        help="try every way that shell games can go",
        description="Search all states of up to three shell games at once, on six nodes, by the real code. "
        "The options say what may happen besides messages in any order.",
    )
    for option, default, about in _NUMBERS:
        command.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"{about} ({default})")
    command.add_argument("--late", action="store_true", help="leases may end while messages are under way")
    command.add_argument("--liar", choices=list(TREE), help="this node says anything to anybody")
    command.add_argument("--lies", type=int, metavar="N", help="how often (1)")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_explore, parser=command)

    diagram = verbs.add_parser("diagram", help="the states of a swap as a page with a diagram")
    diagram.add_argument("--json", action="store_true", help="print one JSON object")
    diagram.set_defaults(run=_diagram, parser=diagram)


def _explore(arguments: argparse.Namespace, _: Context) -> Report:
    for option, _default, _about in _NUMBERS:
        least, most = _BOUNDS.get(option, (0, _FAULTS_MAX))
        within(f"--{option}", getattr(arguments, option.replace("-", "_")), least, most)
    if arguments.lies is not None:
        within("--lies", arguments.lies, 1, _FAULTS_MAX)
    plan = Plan(
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
    data = {**result._asdict(), "steps": list(result.steps), "omission": result.omission}
    return Report(data, _lines(result), FAILED_CHECK if result.fault else 0)


def _lines(result: Result) -> list[str]:
    extent = "all there are" if result.exhausted else "not all there are"
    lines = [f"{result.states:,} states ({extent}), depth {result.depth}"]
    if result.fault:
        return [*lines, f"fault: {result.fault}, after", *(f"  {step}" for step in result.steps)]
    return [*lines, f"no fault; a state was overlooked with probability {result.omission:.0e} at most"]


def _diagram(_: argparse.Namespace, __: Context) -> Report:
    page = swap_diagram()
    return Report({"swap": page}, page.splitlines())


_NUMBERS: Final = (
    ("games", 3, "games, each of which shares nodes with the others"),
    ("losses", 0, "messages lost at most"),
    ("copies", 0, "messages delivered twice at most"),
    ("crashes", 0, "nodes that crash at most"),
    ("states-max", 10_000_000, "states looked at before the search gives up"),
)
_BOUNDS: Final = {"games": (0, len(GAMES)), "states-max": (1, 1_000_000_000)}
_FAULTS_MAX: Final = 8
