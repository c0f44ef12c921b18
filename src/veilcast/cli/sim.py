"""`veilcast sim run` and `sim list`: the same machines in virtual time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.input_checks import SEED_MAX, check_range
from veilcast.errors import StorageError
from veilcast.observe import TableWriter
from veilcast.sim import scenario
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def run(arguments: argparse.Namespace, _: Context) -> Report:
    check_range("--seeds", arguments.seeds, 1, _SEEDS_MAX)
    check_range("--seed", arguments.seed, 0, SEED_MAX - arguments.seeds + 1)
    loaded = scenario.load_scenario(arguments.scenario)
    if arguments.out is not None and any(arguments.out.glob("*.jsonl")):
        raise StorageError(f"{arguments.out} holds tables already; choose another directory")
    from rich.console import Console
    from rich.progress import track

    outcomes = []
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    console = Console(file=sys.stderr)
    hidden = len(seeds) < 2 or not console.is_terminal
    for seed in track(seeds, loaded.name, console=console, transient=True, disable=hidden):
        outcomes.append(_one(loaded, seed, arguments.out))
        if outcomes[-1].violations:
            break
    failed = [outcome for outcome in outcomes if outcome.violations]
    lines = [line for outcome in outcomes for line in _lines(outcome)]
    data = {"scenario": loaded.name, "runs": [_data(outcome) for outcome in outcomes], "failed": len(failed)}
    return Report(data, lines, FAILED_CHECK if failed else 0)


def _one(loaded: Scenario, seed: int, out: Path | None) -> ScenarioOutcome:
    if out is None:
        return scenario.run_scenario(loaded, seed)
    with TableWriter(out) as tables:
        return scenario.run_scenario(loaded, seed, tables)


def _lines(outcome: ScenarioOutcome) -> list[str]:
    counts = outcome.counts
    line = (
        f"{outcome.scenario} seed {outcome.seed}: {counts.sent} frames sent, {counts.delivered} delivered, "
        f"{counts.lost} lost, {outcome.deliveries} notes in {outcome.duration_us / 1e6:g} s; trace {outcome.trace_hash}"
    )
    facts = ", ".join(f"{name} {count}" for name, count in outcome.facts.items())
    return [line, *([f"  {facts}"] if facts else []), *outcome.violations]


def _data(outcome: ScenarioOutcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "sent": outcome.counts.sent,
        "delivered": outcome.counts.delivered,
        "lost": outcome.counts.lost,
        "notes": outcome.deliveries,
        "duration_us": outcome.duration_us,
        "facts": outcome.facts,
        "trace_hash": outcome.trace_hash,
        "violations": list(outcome.violations),
    }


def list_scenarios(_: argparse.Namespace, __: Context) -> Report:
    known = [(name, scenario.load_scenario(name).config.about) for name in scenario.packaged_names()]
    width = max(len(name) for name, _ in known)
    return Report({"scenarios": dict(known)}, [f"{name:{width}} {about}" for name, about in known])


_SEEDS_MAX: Final = 1_000_000
