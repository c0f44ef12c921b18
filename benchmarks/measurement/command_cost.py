"""Runs commands of `veilcast` on a standalone cluster, and measures what the driver and the executors used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from measurement.process_usage import ProcessUsage, TreeUsage
from measurement.standalone_cluster import StandaloneCluster
from veilcast.errors import LocalError


class CommandCost(msgspec.Struct):
    wall_s: float
    load: float
    """Load average of a minute at the end."""
    driver: TreeUsage
    executors: TreeUsage | None
    """None without a cluster of the benchmark's own."""

    @property
    def processor_s(self) -> float:
        """Processor time of all processes."""
        return self.driver.processor_s + (self.executors.processor_s if self.executors is not None else 0.0)


def run_command(
    command: list[str],
    cluster: StandaloneCluster | None,
    disturb: Callable[[ProcessUsage], bool] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], CommandCost]:
    """Run a command of `veilcast`, and return its JSON object. `disturb` is called a few times a second until it
    returns true or the command ends. Raises `LocalError` if the command fails."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "veilcast.cli.main", *command, "--json"],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        roots: dict[str, tuple[int, ...]] = {"driver": (process.pid,)}
        if cluster is not None:
            roots["executors"] = tuple(worker.pid for worker in cluster.workers)
        over = threading.Event()
        with ProcessUsage(roots) as usage:

            def watch() -> None:
                while disturb is not None and not over.wait(_EVERY_S):
                    if disturb(usage):
                        return

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            output, errors = process.communicate()
            over.set()
            watcher.join()
    if process.returncode != 0:
        raise LocalError(errors.decode(errors="replace").strip()[-500:] or f"exit code {process.returncode}")
    executors = usage.usage_of("executors") if cluster is not None else None
    cost = CommandCost(
        round(time.perf_counter() - start, 1), round(os.getloadavg()[0], 1), usage.usage_of("driver"), executors
    )
    print(f"{' '.join(command[:3])}: {describe_cost(cost)}, load {cost.load}", file=sys.stderr, flush=True)
    return json.loads(output), cost


def describe_cost(cost: CommandCost) -> str:
    """Four columns: wall seconds, processor seconds, and peak MB of the driver and of the executors."""
    executors = cost.executors or TreeUsage(0.0, 0)
    return f"{cost.wall_s:>8.0f}{cost.processor_s:>8.0f}{cost.driver.peak_mb:>8,}{executors.peak_mb:>8,}"


_EVERY_S: Final = 0.2
