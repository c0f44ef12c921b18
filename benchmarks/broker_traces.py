"""How long does P4's trace take to make and replay on Spark, and how does the time grow with its length?

    python benchmarks/broker_traces.py [--rows N] [--json]

The executors write relations and interactions as Parquet, part by part. Interactions are read again and replayed for
three placements of users on 400 brokers. Then the same for 10^5, 10^6 and 10^7 interactions of the same users, replayed
as they are made. All on two cores. Three checks: that all rows are there, that every publisher interacts with friends,
and that the matrices are those of one process without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from measurement.peak_memory import PeakMemory
from veilcast.errors import LocalError
from veilcast.lab import tables
from veilcast.lab.models.broker_shares import hop_histogram, mean_cost
from veilcast.lab.models.broker_tree import grow_tree
from veilcast.lab.models.synthetic_trace import P4, TraceLaw
from veilcast.lab.models.user_placement import Matrix, UserPlacement
from veilcast.lab.runs.brokers.spark_replay import make_synthetic_trace, replay_on_spark
from veilcast.lab.spark import session
from veilcast.lab.tables import Interaction, Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TraceTiming(msgspec.Struct, frozen=True):
    what: str
    rows: int
    seconds: float
    rows_s: float
    peak_mb: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=ROWS, metavar="N", help="interactions of the longest trace (%(default)d)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    found = run(arguments.rows, (lambda _: None) if arguments.json else print)
    if arguments.json:
        print(json.dumps(found))


def run(rows: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Report each measurement by `say` as it is made, and return all of them. Wrong results raise `LocalError`.

    `rows` is the number of interactions of the longest trace. P4's trace is scaled by the same factor, relative to
    10^7.
    """
    say(f"{'on two cores':44} {'rows':>12} {'seconds':>9} {'rows/s':>12} {'peak MB':>9}")
    found: list[TraceTiming] = []

    def measure(what: str, count: int, work: Callable[[], object]) -> None:
        with PeakMemory() as peak:
            start = time.perf_counter()
            work()
            seconds = time.perf_counter() - start
        found.append(TraceTiming(what, count, round(seconds, 2), round(count / seconds, 1), peak.bytes >> 20))
        one = found[-1]
        say(f"{one.what:44} {one.rows:>12,} {one.seconds:>9.1f} {one.rows_s:>12,.0f} {one.peak_mb:>9,}")

    law = scale_trace(rows / LONGEST)
    homes = {alpha: UserPlacement.by_zipf(BROKERS, alpha, 0) for alpha in ALPHAS}
    with tempfile.TemporaryDirectory(prefix="veilcast-traces-") as folder, session("local[2]") as spark:
        place = Path(folder)
        small = msgspec.structs.replace(law, interactions=1)
        replay_on_spark(make_synthetic_trace(spark, small, Interaction), homes)  # Workers start, and compile, once.
        make_synthetic_trace(spark, scale_trace(1e-4), Relation).count()
        measure("P4's relations, made and written", law.relations, lambda: _lay(spark, place, law, Relation))
        measure("P4's interactions, made and written", law.interactions, lambda: _lay(spark, place, law, Interaction))
        matrices: dict[float, Matrix] = {}
        read = _read(spark, place, Interaction)
        measure(
            "P4's interactions, read and replayed",
            law.interactions,
            lambda: matrices.update(replay_on_spark(read, homes)),
        )
        check_trace(spark, place, law, homes, matrices)
        for part in (100, 10, 1):
            longer = msgspec.structs.replace(law, interactions=max(1, rows // part))
            frame = make_synthetic_trace(spark, longer, Interaction)
            measure("interactions, made and replayed", longer.interactions, lambda: replay_on_spark(frame, homes))  # noqa: B023
    hops = {alpha: round(_hops(matrix), 3) for alpha, matrix in matrices.items()}
    whole = sum(one.seconds for one in found[:3])
    say(f"P4's trace in {whole:.1f} s, with {max(one.peak_mb for one in found):,} MB at most; virtual nodes on a path:")
    say(", ".join(f"{value:g} at alpha {alpha:g}" for alpha, value in hops.items()))
    # The shortest one also contains the constant part: the start of workers, and one look at every user.
    short, middle, long = (found[at] for at in (-3, -2, -1))
    million_s = [round(_each(*pair) * 1e6, 3) for pair in ((short, middle), (middle, long))]
    say(f"a million more interactions take {million_s[0]:g} s, and {million_s[1]:g} s after the first {rows // 10:,}")
    return {
        "cores": os.cpu_count(),
        "measured": msgspec.to_builtins(found),
        "hops": hops,
        "p4_s": round(whole, 2),
        "million_s": million_s,
    }


def scale_trace(share: float) -> TraceLaw:
    """P4's trace, or this share of it."""
    least = TraceLaw(100, 1_000, 1)
    return TraceLaw(
        *(
            max(getattr(least, name), round(getattr(P4, name) * min(share, 1.0)))
            for name in ("users", "relations", "interactions")
        )
    )


def check_trace(
    spark: SparkSession, place: Path, law: TraceLaw, homes: dict[float, UserPlacement], matrices: dict[float, Matrix]
) -> None:
    """Raise `LocalError` if a row is missing, if an interaction has no relation, or if a matrix differs from that of
    one process."""
    for row, total in ((Relation, law.relations), (Interaction, law.interactions)):
        count = _read(spark, place, row).count()
        if count != total:
            raise LocalError(f"of {total:,} rows of {tables.TABLE_OF[row]}, {count:,} were written")
    some = law.part(0, max(1, law.users // _LOOKED_AT))
    known = set(zip(*(column.tolist() for column in law.relations_of(some)), strict=True))
    said = law.interactions_of(some)
    if any(pair not in known for pair in zip(said.publisher.tolist(), said.subscriber.tolist(), strict=True)):
        raise LocalError("somebody spoke to a stranger")
    alone = law.interactions_of(law.part(0, 1))
    for alpha, matrix in matrices.items():
        if not np.array_equal(matrix, homes[alpha].matrix(alone.publisher, alone.subscriber)):
            raise LocalError(f"at alpha {alpha:g} Spark replayed another trace")


def _lay(spark: SparkSession, place: Path, law: TraceLaw, row: type[Interaction] | type[Relation]) -> None:
    make_synthetic_trace(spark, law, row).write.parquet(f"file://{place / tables.TABLE_OF[row]}")


def _read(spark: SparkSession, place: Path, row: type[msgspec.Struct]) -> DataFrame:
    return spark.read.schema(tables.spark_schema(row)).parquet(f"file://{place / tables.TABLE_OF[row]}")


def _each(less: TraceTiming, more: TraceTiming) -> float:
    """Seconds for each additional row."""
    return (more.seconds - less.seconds) / max(1, more.rows - less.rows)


def _hops(matrix: Matrix) -> float:
    counted = hop_histogram(matrix, grow_tree(BROKERS, 2, "complete", 0).edges)
    return mean_cost(counted, range(1, counted.size + 1))


BROKERS: Final = 400
ALPHAS: Final = (0.5, 1.0, 2.0)
LONGEST: Final = 10**7
_LOOKED_AT: Final = 1_000
ROWS: Final = 10**7


if __name__ == "__main__":
    main()
