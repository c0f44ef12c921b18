"""Does a cluster write the bytes that one machine writes, also if a worker and an executor are killed meanwhile?

    python benchmarks/cluster_sweeps.py [--experiment NAME] [--seeds N] [--kill-seeds N] [--workers N] [--full] [--json]

Each row is one sweep, `lab run NAME --quick`, made twice from nothing: on `local[2]`, and on a standalone cluster of
this machine, whose workers have one core each. All Parquet files of both must be equal byte for byte, or there is no
result. In the second row processes are killed with signal 9, when the first portion of results is stored: first an
executor, whose worker starts another; then a worker together with its executor. Spark's own event log must show both
losses, or there is no result: then the sweep was too short, and needs more `--kill-seeds`.

Seconds of the processor are those of all processes. A cluster of this machine is no test of speed: its workers share
the cores.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from measurement.command_cost import CommandCost, describe_cost, run_command
from measurement.event_log import read_history
from measurement.process_usage import ProcessUsage
from measurement.standalone_cluster import StandaloneCluster, start_cluster
from veilcast.errors import LocalError


class ClusterSweep(msgspec.Struct):
    seeds: int
    runs: int
    files: int
    """Parquet files, each of which is the same in both places."""
    lost: int
    """Executors that the cluster lost."""
    failed: int
    """Tasks that were lost with them, and made again."""
    local: CommandCost
    cluster: CommandCost


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", default="mesh-fig12", metavar="NAME", help="an experiment (%(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=40, metavar="N", help="seeds without a kill (%(default)d; 0: none)"
    )
    parser.add_argument("--kill-seeds", type=int, default=4000, metavar="N", help="seeds with kills (%(default)d)")
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="workers of the cluster (%(default)d)")
    parser.add_argument("--full", action="store_true", help="not the experiment's smallest version")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.workers < 2:
        parser.error("--workers: 2 or more, for one of them is killed")
    say: Callable[[str], object] = (lambda _: None) if arguments.json else print
    cost = f"{'wall s':>8}{'cpu s':>8}{'driver':>8}{'exec.':>8}"
    say(f"{'':>44}{'local[2]':>32}{'cluster':>32}")
    say(f"{'seeds':>7}{'runs':>9}{'equal files':>12}{'lost':>7}{'again':>9}{cost}{cost}")
    found = []
    for seeds, kill in ((arguments.seeds, False), (arguments.kill_seeds, True)):
        if not seeds:
            continue
        with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder:
            base = Path(folder)
            (base / "cluster").mkdir()
            with start_cluster(base / "cluster", arguments.workers) as cluster:
                sweep = [arguments.experiment, "--seeds", f"{seeds}", *([] if arguments.full else ["--quick"])]
                result = measure_sweep(base, sweep, seeds, cluster, kill=kill)
        found.append(result)
        head = f"{result.seeds:>7,}{result.runs:>9,}{result.files:>12,}{result.lost:>7}{result.failed:>9}"
        say(f"{head}{describe_cost(result.local)}{describe_cost(result.cluster)}")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found)))


def measure_sweep(base: Path, sweep: list[str], seeds: int, cluster: StandaloneCluster, *, kill: bool) -> ClusterSweep:
    """Sweep here and there. Raises `LocalError` if a file differs, or what was to be killed was not."""
    logs = base / "events"
    there = ["--master", cluster.master, "--event-log", f"{logs}", "--conf", "spark.eventLog.compress=false"]
    disturb = KillPlan(cluster, base / "cluster-out", sweep[0]) if kill else None
    ran, cost = run_command(["lab", "run", *sweep, "--out", f"{base / 'cluster-out'}", *there], cluster, disturb)
    alone, local = run_command(["lab", "run", *sweep, "--out", f"{base / 'out'}", "--master", "local[2]"], None)
    files = compare_files(base / "out", base / "cluster-out")
    history = read_history(logs)
    if kill and history.lost < KILLS:
        raise LocalError(f"the cluster lost {history.lost} of {KILLS} executors; give more --kill-seeds")
    runs = ran["experiments"][0]["runs"]
    if runs != alone["experiments"][0]["runs"]:
        raise LocalError("both places made another number of runs")
    return ClusterSweep(seeds, runs, files, history.lost, history.failed, local, cost)


class KillPlan:
    """Kills an executor once a portion is stored, and a worker once the executors have worked on. It is called a few
    times a second."""

    def __init__(self, cluster: StandaloneCluster, out: Path, experiment: str) -> None:
        self._cluster, self._entries = cluster, out / "manifests" / experiment
        self._killed_at_s: float | None = None

    def __call__(self, usage: ProcessUsage) -> bool:
        """Whether all is killed."""
        worked_s = usage.usage_of("executors").processor_s
        if self._killed_at_s is None:
            # The first entry of the manifest says what is swept; the second one lists a portion.
            if len(list(self._entries.glob("*.json"))) > 1 and self._cluster.kill_executors(0):
                self._killed_at_s = worked_s
            return False
        if worked_s < self._killed_at_s + WORK_BETWEEN_S:
            return False
        self._cluster.kill_worker(len(self._cluster.workers) - 1)
        return True


def compare_files(one: Path, other: Path) -> int:
    """The number of Parquet files, each of which must have the same bytes in both directories."""
    found = [_bytes_by_name(out) for out in (one, other)]
    if different := sorted(name for name in found[0].keys() | found[1].keys() if _differs(name, *found)):
        raise LocalError(f"{len(different):,} files differ, such as {different[0]}")
    if not found[0]:
        raise LocalError("the sweeps have written no file")
    return len(found[0])


def _differs(name: str, one: dict[str, bytes], other: dict[str, bytes]) -> bool:
    return one.get(name) != other.get(name)


def _bytes_by_name(out: Path) -> dict[str, bytes]:
    """A part of each name is an attempt's own, and is left out."""
    return {_ATTEMPT.sub(".", path.relative_to(out).as_posix()): path.read_bytes() for path in out.rglob("*.parquet")}


KILLS: Final = 2
WORK_BETWEEN_S: Final = 8.0
"""Seconds of the executors' processor time between the two kills: then the executor has been replaced."""
_ATTEMPT: Final = re.compile(r"\.[0-9a-f]{8}\.")

if __name__ == "__main__":
    main()
