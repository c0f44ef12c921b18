"""How long do the attackers take over tables of a million rows and more, on Spark and in pandas?

    python benchmarks/attack_engines.py [--rows N] [--json]

The same tables go through Spark on one core and on two, and through plain pandas as far as they fit into memory. The
results must be the same. Seconds are wall-clock time, and memory is that of all processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import isclose
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from engines import pandas_attacks, relay_tables, tiled_tables
from engines.pandas_attacks import Scores
from engines.relay_tables import RelayTables
from engines.tiled_tables import HEARTBEAT_US, TiledTables
from measurement.peak_memory import PeakMemory
from veilcast.errors import LocalError, StorageError
from veilcast.lab import tables
from veilcast.lab.attack.insider import spark_job
from veilcast.lab.attack.observer import spark_job as outside
from veilcast.lab.spark import session
from veilcast.observe import CellRow, InsiderRow, ObservationRow, PresenceRow, TopologyRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_Seen = TypeVar("_Seen", TiledTables, RelayTables)


class AttackTiming(msgspec.Struct, frozen=True):
    rows: int
    by: str
    """Spark and its master, or pandas."""
    attack: str
    seconds: float
    rows_s: float
    peak_mb: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help="rows of the largest table (%(default)d)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    found = run(arguments.rows, (lambda _: None) if arguments.json else print)
    if arguments.json:
        print(json.dumps(found))


def run(rows: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Report each measurement by `say` as it is made, and return all of them. Wrong results raise `LocalError`."""
    say(f"{'rows':>12}  {'by':17} {'attack':19} {'seconds':>9} {'rows/s':>12} {'peak MB':>9}")
    found: list[AttackTiming] = []

    def tell(one: AttackTiming) -> None:
        found.append(one)
        row = f"{one.rows:>12,}  {one.by:17} {one.attack:19} {one.seconds:>9.1f} {one.rows_s:>12,.0f} {one.peak_mb:>9,}"
        say(row)

    missing: list[str] = []
    row_bytes = 0.0
    for size in dict.fromkeys(max(_LEAST, rows // part) for part in (100, 10, 1)):
        with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder:
            _require_space(folder, size)
            tiled, relayed = (
                tiled_tables.write_tables(Path(folder) / "tables", size),
                relay_tables.write_tables(Path(folder) / "relay", size),
            )
            expected: Scores | None = None
            if (needed := row_bytes * size) < _PANDAS_BYTES:
                done = _in_pandas(tiled)
                row_bytes, expected = done.peak_bytes / size, done.scores
                for attack, seconds in done.seconds.items():
                    tell(_timing(tiled.rows, "pandas", attack, seconds, done.peak_bytes))
            else:
                missing.append(f"{size:,} rows: pandas would need {needed / 2**30:.0f} GB, and is not asked")
            for cores in (1, 2):
                for one in _on_spark(cores, tiled, relayed, expected):
                    tell(one)
    for reason in missing:
        say(reason)
    return {"cores": os.cpu_count(), "measured": msgspec.to_builtins(found), "missing": missing}


def check_scores(scores: Scores, expected: Scores | None) -> None:
    """Compare with the expected scores; without them, require the same scores in every run but the last, which can be
    shorter."""
    if not scores:
        raise LocalError("nobody was guessed at")
    if expected is None:
        runs = sorted({run for run, *_ in scores})
        by_run = {run: {key[1:]: score for key, score in scores.items() if key[0] == run} for run in runs}
        expected = {(run, *key): score for run in runs[:-1] for key, score in by_run[runs[0]].items()}
        scores = {key: score for key, score in scores.items() if key[0] in runs[:-1]}
    if expected.keys() != scores.keys():
        raise LocalError(f"{len(scores)} guesses came, and {len(expected)} should have")
    for key, score in scores.items():
        if not isclose(score, expected[key], rel_tol=1e-9, abs_tol=1e-9):
            raise LocalError(f"{' '.join(key)} has a score of {score}, not {expected[key]}")


def _on_spark(cores: int, tiled: TiledTables, relayed: RelayTables, expected: Scores | None) -> Iterator[AttackTiming]:
    def timed(name: str, rows: int, attack: Callable[[SparkSession], DataFrame]) -> AttackTiming:
        with PeakMemory() as peak:
            start = time.perf_counter()
            scores = _scores(attack(spark))
            seconds = time.perf_counter() - start
        tried = {attack for _, attack, *_ in scores}
        check_scores(scores, {key: score for key, score in (expected or {}).items() if key[1] in tried} or None)
        return _timing(rows, f"Spark, local[{cores}]", name, seconds, peak.bytes)

    with session(f"local[{cores}]") as spark:
        for name, attack in _ATTACKS.items():
            yield timed(name, tiled.rows, partial(_over, attack, tiled))
        yield timed("all of a relay's", relayed.rows, partial(_over, relay_tables.run_attackers, relayed))


def _over(attack: Callable[[SparkSession, _Seen], DataFrame], seen: _Seen, spark: SparkSession) -> DataFrame:
    return attack(spark, seen)


def _in_pandas(tiled: TiledTables) -> pandas_attacks.PandasResult:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(pandas_attacks.run_in_pandas, tiled).result()


def _of_notes(spark: SparkSession, tiled: TiledTables) -> DataFrame:
    cells = _read(spark, tiled.cells, CellRow)
    return outside.guess_roles(cells, heartbeat_us=HEARTBEAT_US, attacks=["leaf", "intersection"])


def _cadence(spark: SparkSession, tiled: TiledTables) -> DataFrame:
    return outside.guess_roles(_read(spark, tiled.cells, CellRow), heartbeat_us=HEARTBEAT_US, attacks=["cadence"])


def _first_spy(spark: SparkSession, tiled: TiledTables) -> DataFrame:
    given = (_read(spark, tiled.insiders, InsiderRow), _read(spark, tiled.topology, TopologyRow))
    return spark_job.guess_from_coalition(
        *given, _read(spark, tiled.presence, PresenceRow), attacks=["first-spy"], epochs=[sys.maxsize]
    )


def _read(spark: SparkSession, place: str, row: type[ObservationRow]) -> DataFrame:
    return spark.read.schema(tables.spark_schema(row)).parquet(f"file://{place}")


def _scores(guesses: DataFrame) -> Scores:
    """Scores by run, attack, role and node. If a guess is about a topic or a request, its name precedes the node's."""
    columns = guesses.select("run", "attack", "role", "topic", "node", "score").toArrow().to_pydict()
    return {
        (run, attack, role, f"{topic} {node}" if topic else node): score
        for run, attack, role, topic, node, score in zip(*columns.values(), strict=True)
    }


def _timing(rows: int, by: str, attack: str, seconds: float, peak: int) -> AttackTiming:
    return AttackTiming(rows, by, attack, round(seconds, 2), round(rows / seconds), peak >> 20)


def _require_space(folder: str, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * _DISK_BYTES:
        raise StorageError(
            f"{rows:,} rows take {rows * _DISK_BYTES >> 30} GB in {folder}, which has {free >> 30} free "
            "(TMPDIR chooses another place, --rows fewer rows)"
        )


_ATTACKS: Final[dict[str, Callable[[SparkSession, TiledTables], DataFrame]]] = {
    "leaf, intersection": _of_notes,
    "cadence": _cadence,
    "first-spy": _first_spy,
}
_LEAST: Final = 10_000
_DISK_BYTES: Final = 150
"""Disk space of a row, with Spark's temporary files for sorting."""
_PANDAS_BYTES: Final = 12 << 30
"""Memory limit of pandas; Spark has the same."""
ROWS: Final = 10**8


if __name__ == "__main__":
    main()
