"""How long do the attackers on a relay take on Spark, over a server's log of a million rows and more?

    python benchmarks/relay_attackers.py [--rows N ...] [--json]

The log of the server and the proxy and the wires of the clients are tiles of one modelled epoch
(`engines/relay_tables`), so every run must get the same scores. Seconds are wall-clock time, and memory is that of all
processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from math import isclose
from pathlib import Path
from typing import Any, Final

import msgspec

from engines import relay_tables
from engines.lab_pipeline import guess_on_relay, open_spark
from measurement.peak_memory import PeakMemory
from veilcast.errors import LocalError

Scores = dict[tuple[str, ...], float]
"""Score by attack, role, topic and node."""


class RelayTiming(msgspec.Struct, frozen=True):
    rows: int
    cores: int
    seconds: float
    rows_s: float
    peak_mb: int
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), metavar="N", help="rows of the server's log")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    found: list[RelayTiming] = []
    if not arguments.json:
        print(f"{'rows':>12} {'cores':>6} {'seconds':>9} {'rows/s':>12} {'peak MB':>9} {'load':>6}")
    for rows in arguments.rows:
        for cores in (1, 2):
            one = measure_attackers(rows, cores)
            found.append(one)
            if not arguments.json:
                row = f"{one.rows:>12,} {one.cores:>6} {one.seconds:>9.1f} {one.rows_s:>12,.0f} {one.peak_mb:>9,}"
                print(f"{row} {one.load:>6g}")
    if arguments.json:
        print(json.dumps({"cores": os.cpu_count(), "measured": msgspec.to_builtins(found)}))


def measure_attackers(rows: int, cores: int) -> RelayTiming:
    """All attackers on a relay, once, over a log of this many rows. Wrong results raise `LocalError`."""
    with tempfile.TemporaryDirectory(prefix="veilcast-bench-") as folder, open_spark(cores, None) as spark:
        ledgers = relay_tables.write_tables(Path(folder), rows)
        with PeakMemory() as peak:
            start = time.perf_counter()
            guesses = guess_on_relay(spark, ledgers).toArrow().to_pylist()
            seconds = time.perf_counter() - start
    check_runs(guesses)
    rate, load = round(ledgers.rows / seconds), round(os.getloadavg()[0], 1)
    return RelayTiming(ledgers.rows, cores, round(seconds, 2), rate, peak.bytes >> 20, load)


def check_runs(guesses: list[dict[str, Any]]) -> None:
    """All runs must have the same scores, except the last one, which can be shorter."""
    by_run: defaultdict[str, Scores] = defaultdict(dict)
    for row in guesses:
        by_run[row["run"]][row["attack"], row["role"], row["topic"], row["node"]] = row["score"]
    if not by_run:
        raise LocalError("the attackers guessed nothing")
    first, *others = [by_run[run] for run in sorted(by_run)]
    for scores in others[:-1]:
        if scores.keys() != first.keys():
            raise LocalError(f"{len(scores)} guesses about a run, and {len(first)} about another")
        for key, score in scores.items():
            if not isclose(score, first[key], rel_tol=1e-9, abs_tol=1e-9):
                raise LocalError(f"{' '.join(key)} has a score of {score} in one run and of {first[key]} in another")


ROWS: Final = (10**6, 10**7)

if __name__ == "__main__":
    main()
