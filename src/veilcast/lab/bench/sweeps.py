"""How many runs a second Spark sweeps.

The runs are those of the loops, with all measures; a sweep moreover checks and sorts every row, writes them to disk,
and sums them up. It has several processes, so its seconds are the clock's on the wall, and what others do on the
machine is in them. Until Spark and its workers stand is told apart.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from veilcast.errors import LocalError
from veilcast.lab.bench.clock import timed
from veilcast.lab.bench.loops import PARAMS
from veilcast.lab.spark import session
from veilcast.lab.sweep import sweep
from veilcast.lab.sweep.engines import ENGINES
from veilcast.lab.sweep.experiment import Experiment


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


def _experiment() -> Experiment:
    return Experiment(
        title="Sweeps",
        claim="",
        reading="",
        minutes=1,
        base={"cover": PARAMS.cover},
        axes={"mu": tuple(round(PARAMS.mu + 0.001 * step, 3) for step in range(_CELLS))},
    )


_CELLS: Final = 20
"""As many as figures of P0 have, about; they differ by a thousandth of mu."""
