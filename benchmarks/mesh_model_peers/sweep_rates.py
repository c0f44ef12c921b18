"""Runs per second of a sweep on Spark, for short runs and for longer ones.

The runs are those of `run_rates`, with all measures. A sweep also checks and sorts every row, writes them to disk, and
computes scores. It has several processes, so its seconds are wall-clock time, with the load of other processes in them.
The start of Spark and its workers is measured separately. Runs of half a millisecond show the overhead of a sweep; the
speed-up of two cores shows with longer runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from measurement.stopwatch import measure_time
from mesh_model_peers.run_rates import PARAMS
from veilcast.errors import LocalError
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.runs.table import ENGINES
from veilcast.lab.spark import session
from veilcast.lab.storage.location import LocalDirectory


class SweepTiming(msgspec.Struct, frozen=True):
    """On `cores` cores of this machine."""

    cores: int
    ready_s: float
    """Time until Spark and its workers are ready."""
    rates: dict[int, float]
    """Runs per second, by number of nodes."""


def measure_sweeps(cores: int, seeds: Mapping[int, int]) -> SweepTiming:
    """Sweep overlays of these numbers of nodes, each over its number of seeds."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder, session(f"local[{cores}]") as spark:

        def work(nodes: int, wanted: int, out: str) -> sweep.SweepResult:
            runner = ENGINES["kernel"]
            place = LocalDirectory(Path(folder) / out)
            return sweep.run_sweep(
                spark, "bench", _experiment(nodes), place, engine="kernel", runner=runner, seeds=wanted
            )

        # The first sweep starts the workers, and compiles.
        work(min(seeds), 1, "first")
        ready_s = time.perf_counter() - start
        rates = {}
        for nodes, wanted in seeds.items():
            seconds, result = measure_time(partial(work, nodes, wanted, f"timed-{nodes}"), time.perf_counter)
            if result.runs != wanted * _CELLS:
                raise LocalError(f"a sweep did {result.runs} runs, not {wanted * _CELLS}")
            rates[nodes] = result.runs / seconds
    return SweepTiming(cores, ready_s, rates)


def _experiment(nodes: int) -> Experiment:
    return Experiment(
        title="Sweeps",
        kind="mesh.flows",
        claim="",
        reading="",
        minutes=1,
        base={"cover": PARAMS.cover, "nodes": nodes},
        axes={"mu": tuple(round(PARAMS.mu + 0.001 * step, 3) for step in range(_CELLS))},
    )


_CELLS: Final = 20
"""About as many as figures of P0 have; they differ by a thousandth of mu."""
