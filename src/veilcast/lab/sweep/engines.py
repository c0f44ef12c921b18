"""The ways to make a run: models on arrays, the real machines in the simulator, and these on real sockets.

The first two are functions of (parameters, seed, data folder), give the same measures under the same names, and may be
called in any process. A run on real sockets takes real time, is alone on its machine, and never comes out twice the
same. What an engine needs is imported only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from veilcast.lab.sweep.params import Measure, Params

Engine: TypeAlias = Callable[[Params, int, Path | None], list[Measure]]


def _kernel(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.sweep.kernel_runs import run

    return run(params, seed, data)


def _machines(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.sweep import capture_runs, delay_runs, machine_runs, relay_machines, tree_machines, tree_times

    if params.brokers:
        from veilcast.lab.sweep import broker_machines

        return broker_machines.messages(params, seed)
    if params.timed and params.tree:
        return tree_times.run(params, seed, data)
    if params.timed:
        return delay_runs.run(params, seed, data)
    if params.relay:
        return relay_machines.run(params, seed)
    if params.tree:
        return tree_machines.run(params, seed)
    return machine_runs.run(params, seed, data) if params.wire == "bare" else capture_runs.run(params, seed, data)


def _live(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.sweep import broker_times, delay_runs, live_runs

    if params.brokers == "delays":
        from veilcast.lab.sweep import broker_machines

        return broker_machines.delays(params, seed)
    if params.brokers:
        return broker_times.run(params, seed)
    return delay_runs.run_live(params, seed, data) if params.timed else live_runs.run(params, seed, data)


ENGINES: Final[Mapping[str, Engine]] = {"kernel": _kernel, "machines": _machines, "live": _live}
