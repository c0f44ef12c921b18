"""The ways to make a run: models on arrays, the real machines in the simulator, and these on real sockets.

The first two are functions of (parameters, seed, data folder), give the same measures under the same names, and may be
called in any process. A run on real sockets takes real time, is alone on its machine, and never comes out twice the
same. What an engine needs is imported only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from veilcast.lab.experiment.params import Measure, Params

RunFunction: TypeAlias = Callable[[Params, int, Path | None], list[Measure]]


def _kernel(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.runs.mesh.flows_model import run

    return run(params, seed, data)


def _machines(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.runs.mesh import flows_machines, wires_machines
    from veilcast.lab.runs.relay import attacks_machines, delays
    from veilcast.lab.runs.tree import costs_machines, delays_model

    if params.brokers:
        from veilcast.lab.runs.brokers import machines

        return machines.measure_messages(params, seed)
    if params.timed and params.tree:
        return delays_model.run(params, seed, data)
    if params.timed:
        return delays.run(params, seed, data)
    if params.relay:
        return attacks_machines.run(params, seed)
    if params.tree:
        return costs_machines.run(params, seed)
    return flows_machines.run(params, seed, data) if params.wire == "bare" else wires_machines.run(params, seed, data)


def _live(params: Params, seed: int, data: Path | None) -> list[Measure]:
    from veilcast.lab.runs.brokers import share_times
    from veilcast.lab.runs.mesh import wires_live
    from veilcast.lab.runs.relay import delays

    if params.brokers == "delays":
        from veilcast.lab.runs.brokers import machines

        return machines.measure_delays(params, seed)
    if params.brokers:
        return share_times.run(params, seed)
    return delays.run_on_sockets(params, seed, data) if params.timed else wires_live.run(params, seed, data)


ENGINES: Final[Mapping[str, RunFunction]] = {"kernel": _kernel, "machines": _machines, "live": _live}
