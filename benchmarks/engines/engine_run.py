"""One attack by one engine, twice, in a process of its own: the first pass and the warm one.

    python -m engines.engine_run REQUEST      with benchmarks/ on the path; prints one JSON object

The parent watches the process and all that it starts. It ends them where they exceed the memory or the time that every
engine gets alike.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from engines.tiled_tables import TiledTables
from measurement.peak_memory import PeakMemory
from measurement.process_tree import kill_tree, processor_seconds
from veilcast.errors import LocalError


class EngineRequest(msgspec.Struct, frozen=True):
    engine: str
    attack: str
    tables: TiledTables
    cores: int
    memory_mb: int | None = None
    """Limit of all processes together."""
    passes: int = 2
    started: float = 0.0
    """When the parent started the process, in seconds since 1970."""
    master: str | None = None
    """Master of Spark's engines; None for this machine. The processes of a cluster are not measured."""


class EngineTiming(msgspec.Struct, frozen=True):
    ready_s: float
    """From the start of the process until the engine takes a query."""
    first_s: float
    first_cpu_s: float
    """Processor time of all processes, of the first pass."""
    warm_s: float | None
    warm_cpu_s: float | None
    guesses: int
    digest: str
    """Hash of all guesses, their scores rounded to six digits."""
    peak_mb: int = 0
    """Proportional set size of all processes, at most."""


class EngineFailure(msgspec.Struct, frozen=True):
    reason: str


def run_engine(request: EngineRequest, limit_s: float) -> EngineTiming | EngineFailure:
    """Run a request in a process of its own, within a time and the request's memory."""
    paths = [str(_BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory(prefix="veilcast-engine-", ignore_cleanup_errors=True) as scratch:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": scratch}
        environment |= {name: str(request.cores) for name in ("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS")}
        request = msgspec.structs.replace(request, started=time.time())
        command = [sys.executable, "-m", "engines.engine_run", msgspec.json.encode(request).decode()]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            limit = None if request.memory_mb is None else request.memory_mb << 20
            with PeakMemory(process.pid, limit) as peak:
                try:
                    output, errors = process.communicate(timeout=limit_s)
                except subprocess.TimeoutExpired:
                    kill_tree(process.pid)
                    process.communicate()
                    return EngineFailure(f"not within {limit_s:g} s")
    if peak.exceeded:
        return EngineFailure(f"more than {request.memory_mb:,} MB")
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        return EngineFailure(lines[-1][:_REASON_MAX])
    timing = msgspec.json.decode(output, type=EngineTiming)
    return msgspec.structs.replace(timing, peak_mb=peak.bytes >> 20)


def digest_guesses(guesses: pa.Table) -> str:
    """Equal for equal guesses in any order, up to the seventh digit of a score."""
    names = ("run", "attack", "epochs", "coalition", "topic", "role", "node")
    columns = [guesses[name].to_pylist() for name in names]
    scores = [f"{score:.6f}" for score in guesses["score"].to_pylist()]
    rows = sorted("\t".join(map(str, row)) for row in zip(*columns, scores, strict=True))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def main() -> None:
    request = msgspec.json.decode(sys.argv[1], type=EngineRequest)
    with _open_engine(request) as attack:
        ready_s = time.time() - request.started
        passes = [_time_pass(attack) for _ in range(request.passes)]
    digests = {digest_guesses(found) for *_, found in passes}
    if len(digests) > 1:
        raise LocalError("two passes gave different guesses")
    (first_s, first_cpu_s, guesses), *warm = passes
    warm_s, warm_cpu_s = warm[0][:2] if warm else (None, None)
    timing = EngineTiming(ready_s, first_s, first_cpu_s, warm_s, warm_cpu_s, len(guesses), digests.pop())
    sys.stdout.write(msgspec.json.encode(timing).decode())


@contextlib.contextmanager
def _open_engine(request: EngineRequest) -> Iterator[Callable[[], pa.Table]]:
    from engines import lab_pipeline, reductions

    if request.engine in ("spark", "spark-sql"):
        guess = lab_pipeline.guess_on_spark if request.engine == "spark" else lab_pipeline.guess_by_spark_sql
        with lab_pipeline.open_spark(request.cores, request.memory_mb, request.master) as spark:
            yield lambda: guess(spark, request.tables, request.attack)
        return
    if request.engine == "in-process":
        yield lambda: lab_pipeline.guess_in_process(request.tables, request.attack)
        return
    limits = reductions.EngineLimits(request.cores, request.memory_mb, tempfile.gettempdir())
    peer = reductions.open_peer(request.engine, request.tables, limits)
    yield lambda: reductions.guess_by_peer(peer, request.attack)


def _time_pass(work: Callable[[], pa.Table]) -> tuple[float, float, pa.Table]:
    """Wall-clock seconds, processor seconds, and the result."""
    start, start_cpu = time.perf_counter(), processor_seconds(os.getpid())
    found = work()
    return time.perf_counter() - start, processor_seconds(os.getpid()) - start_cpu, found


_BENCHMARKS: Final = Path(__file__).parents[1]
_REASON_MAX: Final = 160

if __name__ == "__main__":
    main()
