"""Gathering: from all cells that an observer has, however many, down to what attackers work on.

A record of a network is mostly heartbeats. What attackers ask for is small beside it: which links there are, who was
there, which cells are notes, how much each node got in a stretch of time. Each of these is one aggregation, which Spark
does on both sides of a shuffle, so that what travels is as small as what comes out; nothing is sorted.

Notes are told from heartbeats as in `waves`, by counts instead of rows: how many cells of a size a link carries in
which millisecond of a heartbeat. Where a heartbeat is whole milliseconds the size that is found is the same.

Frames have the columns of `cells`; each may be gone through more than once, so what is dear to read should be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab.attack.flow_correlation import PARTS
from veilcast.lab.attack.folder import distinct
from veilcast.lab.attack.waves import BIN_US, note_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def links(cells: DataFrame) -> DataFrame:
    """Columns run, epoch, u, v: who had to do with whom in each epoch, u < v, as `topology` has it."""
    from pyspark.sql import functions as sql

    # First by link and direction, as the rows are; what is left for comparing names is little.
    seen = cells.groupBy("run", "epoch", "src", "dst").agg(sql.count("*").alias("cells"))
    ends = sql.least("src", "dst").alias("u"), sql.greatest("src", "dst").alias("v")
    return seen.where("src != dst").select("run", "epoch", *ends).distinct()


def there(links: DataFrame) -> DataFrame:
    """Columns run, epoch, node: who had to do with anybody, as `presence` has it."""
    from pyspark.sql import functions as sql

    return links.select("run", "epoch", sql.explode(sql.array("u", "v")).alias("node")).distinct()


def notes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, epoch, t_us, src, dst: the cells that look like copies of publications."""
    from pyspark.sql import functions as sql

    found = cells.join(sql.broadcast(note_sizes(cells, heartbeat_us)), ["run", "size"])
    return found.select("run", "epoch", "t_us", "src", "dst")


def note_sizes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, size: how long notes are, in each run in which anything looks like one."""
    from pyspark.sql import functions as sql

    moment = sql.expr(f"(t_us % {heartbeat_us}) div {BIN_US} * {BIN_US}").alias("t_us")
    beats = cells.groupBy("run", "src", "dst", "size", moment).agg(sql.count("*").alias("cells"))

    def of_run(rows: pa.Table) -> pa.Table:
        names = distinct([rows["src"], rows["dst"]])
        src, dst = (np.asarray(pc.index_in(rows[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        t_us, size, many = (rows[name].to_numpy() for name in ("t_us", "size", "cells"))
        found = note_size(t_us, src, dst, size, heartbeat_us, many)
        return pa.table([rows["run"][:1], pa.array([found], pa.int64())], ["run", "size"])

    return beats.groupBy("run").applyInArrow(of_run, "run string, size bigint").where("size is not null")


def volumes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, bin, node, arriving, bytes: what left each node, and what reached it, in parts of a heartbeat."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us * {PARTS} div {heartbeat_us}").alias("bin")
    ways = [
        cells.groupBy("run", number, sql.col(end).alias("node"))
        .agg(sql.sum("size").alias("bytes"))
        .withColumn("arriving", sql.lit(arriving))
        for end, arriving in (("src", 0), ("dst", 1))
    ]
    return ways[0].unionByName(ways[1])


def activity(cells: DataFrame, round_us: int) -> DataFrame:
    """Columns run, round, node, bytes: how much each node got in rounds of this length."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us div {round_us}").alias("round")
    return cells.groupBy("run", number, sql.col("dst").alias("node")).agg(sql.sum("size").alias("bytes"))
