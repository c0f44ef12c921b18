"""Captures of any size, observed for an audit on Spark. Cells stay there; the results are as small as links,
notifications and nodes are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import capture
from veilcast.lab.attack.observer import cadence, spark_job
from veilcast.lab.attack.observer.captured_cells import CapturedCells
from veilcast.lab.attack.observer.publication_waves import estimate_heartbeat_us
from veilcast.lab.audit import networks
from veilcast.lab.audit.observed import (
    BIN,
    HEARTBEAT_US,
    PARTS,
    AttackerGuesses,
    ObservedCapture,
    ObservedNetwork,
    require_one,
)
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.capture import ReadingReport
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def observe(
    captures: Sequence[Path],
    epoch_us: int,
    links: Sequence[OverlayLink],
    spark: SparkSession,
    listed: Collection[str] = (),
    *,
    only_listed: bool = False,
) -> ObservedCapture:
    """The same as `memory_reader.observe`, except that the heartbeat is estimated from some links alone."""
    from pyspark.sql import functions as sql

    cells, reading = capture.read(
        captures, run="", epoch_us=epoch_us, trusted=networks.listed_nodes(links, listed), spark=spark
    )
    try:
        cells = cells.persist()
        require_one(len(cells.select("run").distinct().limit(2).collect()))
        carried = cells.groupBy("src", "dst", "size").agg(
            sql.count("*").alias("cells"), sql.min("t_us").alias("first"), sql.max("t_us").alias("last")
        )
        counted = carried.toArrow()
        found, left_out = networks.split_networks(counted, links, listed, only_listed=only_listed)
        seen = frozenset(end for name in ("src", "dst") for end in counted[name].unique().to_pylist())
        links_of = [[link for link in links if link.u in each and link.v in each] for each in found]
        whole = len(found) == 1 and seen <= found[0]
        observed = [
            _observe(cells if whole else _within(cells, each), networks.rows_within(counted, each), reading, own)
            for each, own in zip(found, links_of, strict=True)
        ]
        cells.unpersist()
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    return ObservedCapture(observed, left_out, seen)


def _within(cells: DataFrame, network: frozenset[str]) -> DataFrame:
    """The cells with both ends in one network."""
    from pyspark.sql import functions as sql

    nodes = cells.sparkSession.createDataFrame([(node,) for node in sorted(network)], "node string")
    for end in ("src", "dst"):
        cells = cells.join(sql.broadcast(nodes.withColumnRenamed("node", end)), end, "left_semi")
    return cells


def _observe(
    cells: DataFrame, carried: pa.Table, reading: ReadingReport, links: Sequence[OverlayLink]
) -> ObservedNetwork:
    from pyspark.sql import functions as sql

    beat = _heartbeat(cells, carried)
    bins = sql.expr(f"bigint(floor({BIN} * log2(1 + gap)))").alias("bin")
    gaps = cadence.count_gaps_frame(cells).groupBy("src", "dst", bins).agg(sql.sum("cells").alias("cells")).toArrow()
    copies = spark_job.select_notifications(cells, beat).persist()
    notes = copies.select("t_us", "src", "dst").toArrow()
    nodes, guesses = _by_attacker(_guesses(cells, copies, carried, beat, links))
    copies.unpersist()
    return ObservedNetwork(reading, beat, carried, gaps, notes, nodes, guesses)


def _heartbeat(cells: DataFrame, carried: pa.Table) -> int:
    """Estimated from some links over a limited time."""
    from pyspark.sql import functions as sql

    links = carried.group_by(["src", "dst"]).aggregate([]).sort_by([("src", "ascending"), ("dst", "ascending")])
    some = cells.sparkSession.createDataFrame(links.slice(0, _SAMPLE_LINKS).to_pandas())
    until = pc.min(carried["first"]).as_py() + _SAMPLE_US
    sample = cells.where(sql.col("t_us") < until).join(sql.broadcast(some), ["src", "dst"])
    seen = CapturedCells.from_table(sample.toArrow())
    return estimate_heartbeat_us(seen.t_us, seen.src, seen.dst, seen.size) or HEARTBEAT_US


def _guesses(
    cells: DataFrame, notes: DataFrame, carried: pa.Table, beat: int, links: Sequence[OverlayLink]
) -> pa.Table:
    """Guesses for the whole record and for its parts, each as a run."""
    from pyspark.sql import functions as sql

    first, last = pc.min(carried["first"]).as_py(), pc.max(carried["last"]).as_py()
    part = sql.expr(f"string((t_us - {first}) div {(last - first) // PARTS + 1})")

    def cut(frame: DataFrame) -> DataFrame:
        return frame.withColumn("run", sql.lit(_WHOLE)).unionByName(frame.withColumn("run", part))

    # Parts are too short to find the size of notifications, so that of the whole record is used.
    runs = cut(cells)
    topology = None
    if links:
        pairs = cells.sparkSession.createDataFrame([(link.u, link.v) for link in links], "u string, v string")
        topology = runs.select("run", "epoch").distinct().crossJoin(pairs)
    return spark_job.guess_roles(runs, topology, heartbeat_us=beat, notes=cut(notes)).toArrow()


def _by_attacker(rows: pa.Table) -> tuple[list[str], list[AttackerGuesses]]:
    """The nodes in order, and each attacker's scores; 0 where a part did not contain the node."""
    names = pc.unique(rows["node"]).sort()
    node = pc.index_in(rows["node"], names).to_numpy()
    run = rows["run"].to_numpy(zero_copy_only=False)
    found = []
    for attack, role in dict.fromkeys(zip(rows["attack"].to_pylist(), rows["role"].to_pylist(), strict=True)):
        own = pc.and_(pc.equal(rows["attack"], attack), pc.equal(rows["role"], role)).to_numpy()
        scores: dict[str, NDArray[np.float64]] = {}
        for name in (_WHOLE, *map(str, range(PARTS))):
            kept = own & (run == name)
            scores[name] = np.zeros(len(names))
            scores[name][node[kept]] = rows["score"].to_numpy()[kept]
        whole = scores.pop(_WHOLE)
        found.append(AttackerGuesses(attack, role, whole, np.array(list(scores.values()))))
    return names.to_pylist(), found


_WHOLE: Final = "whole"
_SAMPLE_LINKS: Final = 32
_SAMPLE_US: Final = 120_000_000
