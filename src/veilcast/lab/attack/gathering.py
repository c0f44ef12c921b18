"""Gathering: from all cells that an observer has, however many, down to what attackers work on.

A record of a network is mostly heartbeats. What attackers ask for is small beside it: which links there are, who was
there, which cells are notes, how much each node got in a stretch of time. Each of these is one aggregation, which Spark
does on both sides of a shuffle, so that what travels is as small as what comes out; nothing is sorted.

Notes are told from heartbeats as in `waves`, by counts instead of rows: on how many links a size is seen, and in which
millisecond of a heartbeat how many cells of it leave each node. Where a heartbeat is whole milliseconds the size that
is found is the same.

Frames have the columns of `cells`; each may be gone through more than once, so what is dear to read should be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veilcast.lab.attack.waves import BIN_US, EARLY_US, LATE_US, USUAL

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

    usual = _usual(cells)
    beat = sql.expr(f"int((t_us % {heartbeat_us}) div {BIN_US})").alias("bin")
    beats = cells.groupBy("run", "src", "size", beat).agg(sql.count("*").alias("cells"))
    phases = (
        beats.join(usual, ["run", "size"], "left_semi")
        .groupBy("run", "src", "bin")
        .agg(sql.sum("cells").alias("cells"))
        .groupBy("run", "src")
        .agg((-sql.max(sql.struct("cells", (-sql.col("bin")).alias("bin")))["bin"]).alias("phase"))
    )
    late_us = sql.expr(f"pmod((bin - phase) * {BIN_US} + {EARLY_US}, {heartbeat_us})")
    beside = sql.when(late_us < EARLY_US + LATE_US, -sql.col("cells")).otherwise(sql.col("cells"))
    return (
        beats.join(usual, ["run", "size"], "left_anti")
        .join(phases, ["run", "src"], "left")
        .groupBy("run", "size")
        .agg(sql.sum(beside).alias("beside"))
        .groupBy("run")
        .agg(sql.max(sql.struct("beside", (-sql.col("size")).alias("size"))).alias("best"))
        .where("best.beside > 0")
        .select("run", (-sql.col("best.size")).alias("size"))
    )


def activity(cells: DataFrame, round_us: int) -> DataFrame:
    """Columns run, round, node, bytes: how much each node got in rounds of this length."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us div {round_us}").alias("round")
    return cells.groupBy("run", number, sql.col("dst").alias("node")).agg(sql.sum("size").alias("bytes"))


def _usual(cells: DataFrame) -> DataFrame:
    """Columns run, size: the sizes that are seen on nearly every link."""
    from pyspark.sql import functions as sql

    carried = cells.groupBy("run", "src", "dst", "size").agg(sql.count("*").alias("cells"))
    everywhere = carried.select("run", "src", "dst").distinct().groupBy("run").agg(sql.count("*").alias("links"))
    return (
        carried.groupBy("run", "size")
        .agg(sql.count("*").alias("on"))
        .join(everywhere, "run")
        .where(sql.col("on") >= USUAL * sql.col("links"))
        .select("run", "size")
    )
