"""How do time, memory and tasks grow with the observations that a cluster makes, keeps and attacks again?

    python benchmarks/stored_attacks.py [--experiment NAME] [--seeds N ...] [--workers N] [--master URL] [--kill]
                                        [--keep TABLES] [--dir DIR] [--quick] [--json]

For each number of seeds: `lab run NAME --keep all` on a standalone cluster of this machine, then `lab attack` on what
was kept, both as commands of their own. Every score of the attack must be the sweep's to the last digit, and every
guess the same, or there is no result. After the last number of seeds, `--kill` attacks once more, and kills a worker,
its executor and all that they run when the attack has used half of the executors' time that it used before.

Seconds of the processor are those of all processes: of the driver, and of the workers with their executors. Memory is
the proportional set size of all processes together, at most. A cluster of this machine is no test of speed: its workers
share the cores. `--master` takes another cluster, of which only the driver is measured.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from measurement.command_cost import CommandCost, describe_cost, run_command
from measurement.process_usage import ProcessUsage
from measurement.standalone_cluster import StandaloneCluster, start_cluster
from veilcast.errors import LocalError


class StoredAttackResult(msgspec.Struct):
    experiment: str
    seeds: int
    runs: int
    rows: int
    """Rows of kept tables that the attackers were handed."""
    mb: float
    """Size of all kept files."""
    files: int
    guesses: int
    scores: int
    """Scores of the attack that are the sweep's to the last digit."""
    tasks: int
    median_s: float
    slowest_s: float
    sweep: CommandCost
    attack: CommandCost
    killed: CommandCost | None = None
    """The same attack, in which a worker was killed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", default="foil-million", metavar="NAME", help="an experiment (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 5], metavar="N", help="numbers of seeds (1 5)")
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="workers of the cluster (%(default)d)")
    parser.add_argument("--master", metavar="URL", help="a cluster that runs already")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="keep results there, and continue with those (none)")
    parser.add_argument("--keep", default="all", metavar="TABLES", help="the tables to keep (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="the experiment's smallest version")
    parser.add_argument("--kill", action="store_true", help="attack once more, and kill a worker half-way")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.kill and arguments.master is not None:
        parser.error("--kill needs a cluster of this benchmark's own")
    say: Callable[[str], object] = (lambda _: None) if arguments.json else print
    found = []
    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder, ExitStack() as running:
        base = Path(folder)
        (base / "cluster").mkdir()
        cluster = None
        if arguments.master is None:
            cluster = running.enter_context(start_cluster(base / "cluster", arguments.workers))
        options = ["--quick"] if arguments.quick else []
        for line in _heading():
            say(line)
        for seeds in arguments.seeds:
            result = measure_stored_attack(
                (arguments.dir or base) / f"{seeds}",
                arguments.experiment,
                seeds,
                cluster,
                arguments.master,
                options=[*options, "--keep", arguments.keep],
                kill=arguments.kill and seeds == arguments.seeds[-1],
            )
            found.append(result)
            for line in _lines(result):
                say(line)
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found)))


def measure_stored_attack(
    out: Path,
    experiment: str,
    seeds: int,
    cluster: StandaloneCluster | None,
    master: str | None,
    *,
    options: list[str],
    kill: bool = False,
) -> StoredAttackResult:
    """Sweep, attack and compare. Raises `LocalError` if a score or a guess differs."""
    url = cluster.master if cluster is not None else master or "local[*]"
    ran, sweep = run_command(
        ["lab", "run", experiment, "--seeds", f"{seeds}", "--out", f"{out}", "--master", url, *options], cluster
    )
    attack = ["lab", "attack", f"{out}", experiment, "--master", url]
    attacked, cost = run_command(attack, cluster)
    swept, (found,) = ran["experiments"][0], attacked["experiments"]
    killed = None
    if kill and cluster is not None and cost.executors is not None:
        again, killed = run_command(attack, cluster, _kill_after(cluster, cost.executors.processor_s / 2))
        if {**again["experiments"][0], **_SKEW} != {**found, **_SKEW}:
            raise LocalError("the attack gave something else when a worker was killed")
    files = [path for path in out.rglob("*.parquet") if path.relative_to(out).parts[0] not in _RESULTS]
    return StoredAttackResult(
        experiment=experiment,
        seeds=seeds,
        runs=swept["runs"],
        rows=found["rows"],
        mb=round(sum(path.stat().st_size for path in files) / 1e6, 1),
        files=len(files),
        guesses=found["guesses"],
        scores=compare_scores(swept["scores"], found),
        tasks=found["tasks"],
        median_s=round(found["median_s"], 1),
        slowest_s=round(found["slowest_s"], 1),
        sweep=sweep,
        attack=cost,
        killed=killed,
    )


def compare_scores(swept: list[dict[str, Any]], attacked: dict[str, Any]) -> int:
    """Number of the attack's scores, each of which is the sweep's, and at least one."""
    if attacked.get("different"):
        raise LocalError(f"{attacked['different']:,} of {attacked['compared']:,} guesses differ")
    keys = ("cell", "attack", "metric", "step", "value", "low", "high", "seeds")
    known = {tuple(row[key] for key in keys) for row in _without_infinity(swept)}
    given = {tuple(row[key] for key in keys) for row in _without_infinity(attacked["scores"])}
    if not given or given - known:
        raise LocalError(f"{len(given - known):,} of {len(given):,} scores differ")
    return len(given)


def _kill_after(cluster: StandaloneCluster, executors_s: float) -> Callable[[ProcessUsage], bool]:
    """Kills the last worker once the executors have used so much processor time."""

    def kill(usage: ProcessUsage) -> bool:
        if usage.usage_of("executors").processor_s < executors_s:
            return False
        cluster.kill_worker(len(cluster.workers) - 1)
        return True

    return kill


def _without_infinity(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One seed has no interval: one command says infinity, and the other nothing."""
    for row in rows:
        yield {key: None if value in (float("inf"), float("-inf")) else value for key, value in row.items()}


def _heading() -> Iterator[str]:
    yield f"{'':>46}{'sweep':>30}{'attack':>30}{'attack tasks':>24}"
    cost = f"{'wall s':>8}{'cpu s':>8}{'driver MB':>7}{'exec. MB':>7}"
    yield f"{'seeds':>7}{'rows':>14}{'MB':>8}{'files':>7}{'guesses':>12}{cost}{cost}{'':>4}number, median, slowest"


def _lines(found: StoredAttackResult) -> Iterator[str]:
    head = f"{found.seeds:>7,}{found.rows:>14,}{found.mb:>8,.0f}{found.files:>7,}{found.guesses:>12,}"
    tasks = f"{found.tasks:>8,}{found.median_s:>7.1f} s{found.slowest_s:>7.1f} s"
    yield f"{head}{describe_cost(found.sweep)}{describe_cost(found.attack)}{tasks}"
    if found.killed is not None:
        yield f"{'':>48}{'a worker killed half-way, the same results:':>46}{describe_cost(found.killed)}"


_SKEW: Final = dict.fromkeys(("tasks", "median_s", "slowest_s"))
_RESULTS: Final = frozenset({"measures", "scores", "verdicts"})

if __name__ == "__main__":
    main()
