"""How long do the lab's attackers take over tables of a million rows and more: on Spark, DuckDB, Polars and pandas?

    python benchmarks/attack_engines.py [--rows N ...] [--rounds N] [--engines NAME ...] [--attacks NAME ...]
                                        [--memory-mb MB] [--master URL] [--seconds S] [--json]

Every engine reduces the same Parquet files, and then the same attackers score every node (`engines/lab_pipeline.py`):
`notifications` is the leaf rule and the intersection, `cadence` compares rhythms, `first-spy` reads the table of
insiders. `spark` is the lab's way with stored runs: a task reads files of whole runs and attacks them. `in-process`
does that without Spark, in one thread. `spark-sql` is the lab's way with a record that no task can hold: Spark's own
aggregations and joins. All engines must give the same guesses, or there is no result.

1. Each run is a process of its own: it gets ready, makes a first pass, and makes a warm one.
2. Engines take turns in every round, and each round begins with another engine. A figure is a median, with the least
   and the most. The load of the machine stands beside it.
3. Wall-clock seconds contain the load of others; processor seconds of all processes of an engine contain little of it.
4. Memory is the proportional set size of all processes together, at most. `--memory-mb` ends a run that exceeds that
   limit. DuckDB and Spark are told the limit; Polars and pandas have no such setting.
5. The last lines say where Spark is slower than each peer, and where it is not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from engines import tiled_tables
from engines.engine_run import EngineFailure, EngineRequest, EngineTiming, run_engine
from engines.lab_job import ATTACKS
from veilcast.errors import LocalError, StorageError


class EngineResult(msgspec.Struct):
    """All rounds of one engine on one attack."""

    rows: int
    attack: str
    engine: str
    timings: list[EngineTiming] = []
    loads: list[float] = []
    """Load average of a minute at the end of each run."""
    failure: str = ""

    def seconds(self, name: str) -> list[float]:
        """A field of `EngineTiming`, of every round."""
        return [getattr(timing, name) for timing in self.timings]


Runner = Callable[[EngineRequest, float], EngineTiming | EngineFailure]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), metavar="N", help="rows of each table")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (%(default)d)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME", help=_ALL)
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), metavar="NAME", help=_ALL)
    parser.add_argument("--master", metavar="URL", help="the master for Spark's engines; it sees this machine's files")
    parser.add_argument("--memory-mb", type=int, metavar="MB", help="memory limit of each engine (none)")
    parser.add_argument(
        "--seconds", type=float, default=900.0, metavar="S", help="time limit of each run (%(default)g)"
    )
    parser.add_argument("--passes", type=int, choices=(1, 2), default=2, help="2: also a warm pass (%(default)d)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    say: Callable[[str], object] = (lambda _: None) if arguments.json else print
    found: list[EngineResult] = []
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder:
            require_space(folder, rows)
            tiled = tiled_tables.write_tables(Path(folder) / "tables", rows)
            for attack in arguments.attacks:
                request = EngineRequest(
                    "", attack, tiled, _cores(), arguments.memory_mb, arguments.passes, master=arguments.master
                )
                results = measure_engines(
                    request, arguments.engines, arguments.rounds, arguments.seconds, progress=_tell_progress
                )
                found += results
                for line in [*table_lines(results), *compare_lines(results), ""]:
                    say(line)
    if arguments.json:
        print(json.dumps({"cores": _cores(), "memory_mb": arguments.memory_mb, "results": msgspec.to_builtins(found)}))


def measure_engines(
    request: EngineRequest,
    engines: Sequence[str],
    rounds: int,
    limit_s: float,
    run: Runner = run_engine,
    progress: Callable[[str], object] = lambda _: None,
) -> list[EngineResult]:
    """Let the engines take turns. One that fails is not asked again. Different guesses raise `LocalError`."""
    results = {name: EngineResult(request.tables.rows, request.attack, name) for name in engines}
    for number in range(rounds):
        first = number % len(engines)
        for name in [*engines[first:], *engines[:first]]:
            result = results[name]
            if result.failure:
                continue
            found = run(msgspec.structs.replace(request, engine=name), limit_s)
            if isinstance(found, EngineFailure):
                result.failure = found.reason
                progress(f"round {number + 1}, {request.attack}, {name}: {found.reason}")
                continue
            progress(
                f"round {number + 1}, {request.attack}, {name}: first pass {found.first_s:.1f} s "
                f"(processor {found.first_cpu_s:.1f} s), {found.peak_mb:,} MB, load {os.getloadavg()[0]:.1f}"
            )
            result.timings.append(found)
            result.loads.append(round(os.getloadavg()[0], 1))
            check_guesses(list(results.values()))
    return list(results.values())


def check_guesses(results: Sequence[EngineResult]) -> None:
    """All rounds of all engines must give the same guesses, and at least one."""
    given = {(timing.guesses, timing.digest): each.engine for each in results for timing in each.timings}
    if len(given) > 1:
        told = ", ".join(f"{engine}: {count} guesses {digest}" for (count, digest), engine in given.items())
        raise LocalError(f"engines differ on {results[0].attack}: {told}")
    if any(count == 0 for count, _ in given):
        raise LocalError(f"no engine guessed anything by {results[0].attack}")


def table_lines(results: Sequence[EngineResult]) -> Iterator[str]:
    one = results[0]
    loads = [load for each in results for load in each.loads]
    load = f"load {min(loads):g} to {max(loads):g}" if loads else "no run"
    yield f"{one.attack}, {one.rows:,} rows, {max(len(each.timings) for each in results)} rounds, {load}"
    columns = f"{'ready s':>7} {'first pass s':>21} {'cpu s':>7} {'warm pass s':>21} {'cpu s':>7} {'peak MB':>8}"
    yield f"{'':10} {columns} {'guesses':>8}  hash"
    for each in results:
        if each.failure:
            yield f"{each.engine:10} no result: {each.failure}"
            continue
        first, warm = (_spread(each.seconds(name)) for name in ("first_s", "warm_s"))
        ready, first_cpu, warm_cpu = (_middle(each.seconds(name)) for name in ("ready_s", "first_cpu_s", "warm_cpu_s"))
        peak, last = max(timing.peak_mb for timing in each.timings), each.timings[-1]
        columns = f"{ready:>7} {first:>21} {first_cpu:>7} {warm:>21} {warm_cpu:>7} {peak:>8,} {last.guesses:>8,}"
        yield f"{each.engine:10} {columns}  {last.digest}"


def compare_lines(results: Sequence[EngineResult]) -> Iterator[str]:
    """Spark beside each peer."""
    spark = next((each for each in results if each.engine == "spark"), None)
    if spark is None or not spark.timings:
        return
    for peer in results:
        if peer is spark:
            continue
        if not peer.timings:
            yield f"Spark gives a result, and {peer.engine} does not: {peer.failure}"
            continue
        for name, said in _COMPARED.items():
            ours, theirs = spark.seconds(name), peer.seconds(name)
            if None not in (*ours, *theirs):
                ratio = median(ours) / median(theirs)
                word = f"LOSS: {ratio:.1f} times that of" if ratio > 1 else f"{1 / ratio:.1f} times faster than"
                yield f"Spark, {said}: {word} {peer.engine}"


def require_space(folder: str, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * _DISK_BYTES:
        raise StorageError(
            f"{rows:,} rows take {rows * _DISK_BYTES >> 30} GB in {folder}, which has {free >> 30} free "
            "(TMPDIR chooses another place, --rows fewer rows)"
        )


def _tell_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _middle(seconds: Sequence[Any]) -> str:
    return "-" if None in seconds else f"{median(seconds):.1f}"


def _spread(seconds: Sequence[Any]) -> str:
    if None in seconds:
        return "-"
    return f"{median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f})"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


PEERS: Final = ("duckdb", "polars", "pandas")
ENGINES: Final = (*PEERS, "in-process", "spark", "spark-sql")
ROWS: Final = (10**6, 10**7)
_COMPARED: Final = {
    "first_s": "first pass",
    "first_cpu_s": "first pass, processor time",
    "warm_s": "warm pass",
    "warm_cpu_s": "warm pass, processor time",
}
_ALL: Final = "the ones to measure (all)"
_DISK_BYTES: Final = 150
"""Disk space of a row, with temporary files of an engine for sorting."""

if __name__ == "__main__":
    main()
