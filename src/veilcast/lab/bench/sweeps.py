"""How many runs a second: swept by Spark, in a loop of our own engine, and in loops of the peers.

All do the same experiment, P0's overlay with covers. A sweep does more than the loops: it measures all that the lab
measures (our loop does, too), checks and sorts every row, writes them to disk, and sums them up. Seconds are of the
clock on the wall, since a sweep has several processes; Spark's start is told apart. What peers give is held against
what the kernels give, in distribution.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from veilcast.errors import LocalError
from veilcast.lab.bench.clock import race, timed
from veilcast.lab.bench.peers import Outcome, Peer, Setting
from veilcast.lab.kernels.graph import small_world
from veilcast.lab.kernels.mesh import build, cast
from veilcast.lab.kernels.shellgame import play_swaps
from veilcast.lab.spark import session
from veilcast.lab.sweep import sweep
from veilcast.lab.sweep.engines import ENGINES
from veilcast.lab.sweep.experiment import Experiment
from veilcast.lab.sweep.params import Params


def loops(peers: Sequence[Peer], runs: int, rounds: int) -> dict[str, float]:
    """Runs a second in one process, of ours and of each peer."""
    ours = [_ours(seed) for seed in range(_COMPARED)]
    works: dict[str, Callable[[], object]] = {_OURS: lambda: [_ours(seed) for seed in range(4 * runs)]}
    for peer in peers:
        _check_runs(peer, ours, [peer.run(_SETTING, seed) for seed in range(_COMPARED)])
        works[peer.name] = lambda run=peer.run: [run(_SETTING, seed) for seed in range(runs)]  # type: ignore[misc]
    seconds = race(works, rounds, time.perf_counter)
    return {name: (4 * runs if name == _OURS else runs) / found for name, found in seconds.items()}


def games(peers: Sequence[Peer], swaps: int, rounds: int) -> dict[str, float]:
    """Bare swaps a second on one mesh, of ours and of each peer."""
    graph = small_world(_SETTING.nodes, _SETTING.degree, _SETTING.rewire, 1)
    mesh = build(graph, *cast(graph, _SETTING.ratio, 1), 1)
    play_swaps(mesh, 1, 1)
    works: dict[str, Callable[[], object]] = {_OURS: lambda: play_swaps(mesh, 100 * swaps, 1)}
    for peer in peers:
        play = peer.game(_SETTING, 1)
        occupant = play(swaps)
        if sorted(occupant.values()) != sorted(occupant):
            raise LocalError(f"{peer.name} has lost somebody in a shell game")
        works[peer.name] = lambda play=play: play(swaps)  # type: ignore[misc]
    seconds = race(works, rounds, time.perf_counter)
    return {name: (100 * swaps if name == _OURS else swaps) / found for name, found in seconds.items()}


def swept(cores: int, seeds: int) -> tuple[float, float]:
    """Seconds until Spark stands, and then runs a second, on so many cores of this machine."""
    experiment = _experiment()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder, session(f"local[{cores}]") as spark:

        def work(wanted: int, out: str) -> sweep.Result:
            runner = ENGINES["kernel"]
            return sweep.run(
                spark, "bench", experiment, Path(folder) / out, engine="kernel", runner=runner, seeds=wanted
            )

        # The first sweep starts the workers, and compiles what was not.
        work(1, "first")
        ready_s = time.perf_counter() - start
        seconds, result = timed(lambda: work(seeds, "timed"), time.perf_counter)
    if result.runs != seeds * sum(1 for _ in experiment.cells()):
        raise LocalError(f"a sweep did {result.runs} runs")
    return ready_s, result.runs / seconds


def _ours(seed: int) -> Outcome:
    found = {(measure.attack, measure.metric): measure.value for measure in ENGINES["kernel"](_PARAMS, seed, None)}
    return Outcome(int(found["", "overlay"]), found["leaf", "accuracy_all"])


def _check_runs(peer: Peer, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> None:
    """Their means may differ by four standard errors."""
    one, other = np.array(ours), np.array(theirs)
    error = (one.var(axis=0) / len(one) + other.var(axis=0) / len(other)) ** 0.5
    off = np.abs(one.mean(axis=0) - other.mean(axis=0)) / error
    if off.max() > 4:
        raise LocalError(f"{peer.name} gives {other.mean(axis=0)}, the kernels {one.mean(axis=0)}")


def _experiment() -> Experiment:
    return Experiment(
        title="Sweeps",
        claim="",
        reading="",
        minutes=1,
        base={"cover": _PARAMS.cover},
        axes={"mu": tuple(round(0.6 + 0.001 * step, 3) for step in range(_CELLS))},
    )


_SETTING: Final = Setting()
_PARAMS: Final = Params(
    nodes=_SETTING.nodes,
    degree=_SETTING.degree,
    rewire=_SETTING.rewire,
    ratio=_SETTING.ratio,
    cover="one",
    mu=_SETTING.mu,
)
_OURS: Final = "veilcast"
_CELLS: Final = 20
_COMPARED: Final = 60
"""Runs of each peer, whose means are held against ours."""
