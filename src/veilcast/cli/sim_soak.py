"""`veilcast sim soak`: one seed after another on every core, until all have passed or one has failed."""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.grammar.local import JOBS_MAX
from veilcast.cli.input_checks import SEED_MAX, check_range
from veilcast.sim.brokers import soak as brokers_soak
from veilcast.sim.foil import soak as foil_soak
from veilcast.sim.mesh import soak as mesh_soak
from veilcast.sim.relay import soak as relay_soak
from veilcast.sim.scenario import ScenarioOutcome
from veilcast.sim.soak import Soak
from veilcast.sim.tree import soak as tree_soak


def run(arguments: argparse.Namespace, _: Context) -> Report:
    check_range("--seeds", arguments.seeds, 1, _SEEDS_MAX)
    check_range("--seed", arguments.seed, 0, SEED_MAX - arguments.seeds + 1)
    check_range("--jobs", arguments.jobs, 1, JOBS_MAX)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    passed: Counter[str] = Counter()
    notes, failed = 0, None
    outcomes = _outcomes(SOAKS[arguments.of].run, seeds, min(arguments.jobs, len(seeds)))
    console = Console(file=sys.stderr)
    try:
        for outcome in track(
            outcomes, "soak", len(seeds), console=console, transient=True, disable=not console.is_terminal
        ):
            if outcome.violations:
                failed = outcome
                break
            passed[outcome.scenario] += 1
            notes += outcome.deliveries
    finally:
        outcomes.close()
    return _report(seeds, dict(sorted(passed.items())), notes, failed)


def _report(seeds: range, passed: dict[str, int], notes: int, failed: ScenarioOutcome | None) -> Report:
    count = sum(passed.values())
    data: dict[str, Any] = {
        "first_seed": seeds[0],
        "seeds": len(seeds),
        "passed": count,
        "passed_by_variant": passed,
        "notes": notes,
        "failure": None,
    }
    variants = ", ".join(f"{name} {number}" for name, number in passed.items()) or "none"
    lines = [f"{count} of {len(seeds)} seeds passed: {variants}; {notes} notes delivered"]
    if failed is None:
        return Report(data, lines)
    data["failure"] = {"seed": failed.seed, "variant": failed.scenario, "violations": list(failed.violations)}
    return Report(data, [*lines, f"seed {failed.seed} failed, {failed.scenario}", *failed.violations], FAILED_CHECK)


def _outcomes(run: Callable[[int], ScenarioOutcome], seeds: range, jobs: int) -> Generator[ScenarioOutcome, None, None]:
    """Yield the outcome of each seed, in their order: the first failure is the same for any number of jobs."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    # Spawned, not forked: nothing of this process is in the others, neither its threads nor its locks.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_on_interrupt)
    waiting: deque[Future[ScenarioOutcome]] = deque()
    try:
        for seed in seeds:
            waiting.append(pool.submit(run, seed))
            if len(waiting) > _AHEAD * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _end_on_interrupt() -> None:
    """End a worker on Ctrl-C, which reaches every process of a terminal; only the command itself prints a message."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


SOAKS: Final[dict[str, Soak]] = {
    "mesh": mesh_soak.SOAK,
    "relay": relay_soak.SOAK,
    "tree": tree_soak.SOAK,
    "foil": foil_soak.SOAK,
    "brokers": brokers_soak.SOAK,
    "brokers-liars": brokers_soak.LIARS_SOAK,
    "brokers-every": brokers_soak.EVERY_SOAK,
}
_SEEDS_MAX: Final = 1_000_000
_AHEAD: Final = 4
"""Seeds handed out in advance for each process, so that no process waits for a slow one."""
