"""The global observer on Spark: the table `cells` in, the table `guesses` out, for any number of runs.

1. Cells are mostly heartbeats. Attackers need much less: the links, the presence, the notifications, the bytes by node
   and time. Each is one aggregation that Spark does on both sides of a shuffle, so the shuffled data is as small as the
   result; nothing is sorted. Only aggregations that a chosen attacker needs are made.
2. All rows of a run go to one task (`grouped_tables`), where the attackers score every node. A run's notifications and
   counts must fit into a task, its cells need not.

Notifications are told from heartbeats as in `publication_waves`, by counts in place of rows: the number of cells of a
size on a link in each millisecond of a heartbeat. If a heartbeat is whole milliseconds, both find the same size. Frames
may be scanned more than once, so persist a frame that is expensive to read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, make_guesses, union_tables
from veilcast.lab.attack.observations import ActivityRounds, ByteVolumes, CaptureObservations
from veilcast.lab.attack.observer import cadence
from veilcast.lab.attack.observer.cadence import GapCounts
from veilcast.lab.attack.observer.flow_correlation import BINS_PER_HEARTBEAT
from veilcast.lab.attack.observer.publication_waves import PHASE_BIN_US, notification_size
from veilcast.lab.attack.registry import ACTIVITY, CADENCE, VOLUMES, WAVES, Attacker, attackers_on
from veilcast.lab.models.graph import from_edges
from veilcast.lab.tables import GuessRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregate_links(cells: DataFrame) -> DataFrame:
    """Columns run, epoch, u, v: the pairs of nodes that exchanged cells in each epoch, u < v, as in `topology`."""
    from pyspark.sql import functions as sql

    # First by link and direction, as the rows are; few rows are left for comparing names.
    seen = cells.groupBy("run", "epoch", "src", "dst").agg(sql.count("*").alias("cells"))
    ends = sql.least("src", "dst").alias("u"), sql.greatest("src", "dst").alias("v")
    return seen.where("src != dst").select("run", "epoch", *ends).distinct()


def aggregate_presence(links: DataFrame) -> DataFrame:
    """Columns run, epoch, node: the nodes with any link, as in `presence`."""
    from pyspark.sql import functions as sql

    return links.select("run", "epoch", sql.explode(sql.array("u", "v")).alias("node")).distinct()


def select_notifications(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, epoch, t_us, src, dst: the cells that look like copies of publications."""
    from pyspark.sql import functions as sql

    found = cells.join(sql.broadcast(find_notification_sizes(cells, heartbeat_us)), ["run", "size"])
    return found.select("run", "epoch", "t_us", "src", "dst")


def find_notification_sizes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, size: the size of a notification, for each run in which any cell looks like one."""
    from pyspark.sql import functions as sql

    moment = sql.expr(f"(t_us % {heartbeat_us}) div {PHASE_BIN_US} * {PHASE_BIN_US}").alias("t_us")
    beats = cells.groupBy("run", "src", "dst", "size", moment).agg(sql.count("*").alias("cells"))

    def of_run(rows: pa.Table) -> pa.Table:
        names = distinct_values([rows["src"], rows["dst"]])
        src, dst = (np.asarray(pc.index_in(rows[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        t_us, size, many = (rows[name].to_numpy() for name in ("t_us", "size", "cells"))
        found = notification_size(t_us, src, dst, size, heartbeat_us, many)
        return pa.table([rows["run"][:1], pa.array([found], pa.int64())], ["run", "size"])

    return beats.groupBy("run").applyInArrow(of_run, "run string, size bigint").where("size is not null")


def aggregate_volumes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, bin, node, arriving, bytes: the bytes that left (0) and reached (1) each node, in parts of a
    heartbeat."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us * {BINS_PER_HEARTBEAT} div {heartbeat_us}").alias("bin")
    ways = [
        cells.groupBy("run", number, sql.col(end).alias("node"))
        .agg(sql.sum("size").alias("bytes"))
        .withColumn("arriving", sql.lit(arriving))
        for end, arriving in (("src", 0), ("dst", 1))
    ]
    return ways[0].unionByName(ways[1])


def aggregate_activity(cells: DataFrame, round_us: int) -> DataFrame:
    """Columns run, round, node, bytes: the bytes that each node received in rounds of this length."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us div {round_us}").alias("round")
    return cells.groupBy("run", number, sql.col("dst").alias("node")).agg(sql.sum("size").alias("bytes"))


def guess_roles(
    cells: DataFrame,
    topology: DataFrame | None = None,
    presence: DataFrame | None = None,
    *,
    heartbeat_us: int,
    attacks: Collection[str] | None = None,
    rate: float = 0.1,
    published: DataFrame | None = None,
    notes: DataFrame | None = None,
) -> DataFrame:
    """Score every observed node by each attack.

    Without `topology` the overlay is the links that carry anything; without `presence` every node with a link is
    present. `rate` is the share of subscribers, as far as it is known. `published` (run, topic, t_us) is for an
    observer that is a subscriber and knows the times of publications. `notes` (run, epoch, t_us, src, dst) is for an
    observer that knows which cells are copies of publications.
    """
    chosen = attackers_on(CaptureObservations, attacks, called="attack from outside")
    needs = {need for each in chosen for need in each.needs}
    links = aggregate_links(cells) if topology is None else topology
    there = aggregate_presence(links) if presence is None else presence
    grouped = [RunTable(_LINKS, links, {"u": "u", "v": "v"}), RunTable(_PRESENCE, there, {"at": "epoch", "u": "node"})]
    if needs & {WAVES, ACTIVITY}:
        notes = select_notifications(cells, heartbeat_us) if notes is None else notes
        grouped.append(RunTable(WAVES, notes, {"at": "t_us", "u": "src", "v": "dst", "number": "epoch"}))
    if ACTIVITY in needs:
        activity = aggregate_activity(cells, heartbeat_us)
        grouped.append(RunTable(ACTIVITY, activity, {"at": "round", "u": "node", "share": "cast(bytes as double)"}))
    if CADENCE in needs:
        columns = {"at": "gap", "u": "src", "v": "dst", "number": "size", "share": "cast(cells as double)"}
        grouped.append(RunTable(CADENCE, cadence.count_gaps_frame(cells), columns))
    if VOLUMES in needs:
        columns = {"at": "bin", "u": "node", "number": "cast(arriving as bigint)", "share": "cast(bytes as double)"}
        grouped.append(RunTable(VOLUMES, aggregate_volumes(cells, heartbeat_us), columns))
    if published is not None:
        grouped.append(RunTable(_PUBLISHED, published, {"at": "t_us", "word": "topic"}))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_run(GroupedRun(rows), chosen, heartbeat_us, rate)

    return union_tables(grouped).groupBy("run").applyInArrow(of_run, tables.spark_schema(GuessRow))


def _guess_run(
    run: GroupedRun, chosen: list[Attacker[CaptureObservations]], heartbeat_us: int, rate: float
) -> pa.Table:
    seen, topics = _observations(run, heartbeat_us, rate)
    parts = []
    for each in chosen:
        found = each.score_topics(seen)
        # An attacker that cannot tell topics apart has one score for all of them.
        for topic, scores in zip(topics if len(found) == len(topics) else [""], found, strict=True):
            epochs = len(seen.present)
            parts.append(make_guesses(run.run, each.name, epochs, 0, topic, each.role, run.names, scores))
    return pa.concat_tables(parts)


def _observations(run: GroupedRun, heartbeat_us: int, rate: float) -> tuple[CaptureObservations, list[str]]:
    """The observations, and the known topics; a nameless one if no topic is known."""
    links, there, notes, activity, tally, published = map(
        run.table, (_LINKS, _PRESENCE, WAVES, ACTIVITY, CADENCE, _PUBLISHED)
    )
    epochs = np.union1d(there["at"].to_numpy(), notes["number"].to_numpy())
    present = np.zeros((len(epochs), len(run.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), run.node_numbers(there["u"])] = True
    # Copies at the same time are in an arbitrary but fixed order.
    notes = notes.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    topics = distinct_values([published["word"]])
    counts = (tally["at"].to_numpy(), tally["number"].to_numpy(), tally["share"].to_numpy().astype(np.int64))
    seen = CaptureObservations(
        graph=from_edges(len(run.names), run.node_numbers(links["u"]), run.node_numbers(links["v"])),
        present=present,
        src=run.node_numbers(notes["u"]),
        dst=run.node_numbers(notes["v"]),
        at=notes["at"].to_numpy(),
        epoch=np.searchsorted(epochs, notes["number"].to_numpy()),
        rounds=_rounds(run, activity, heartbeat_us),
        published=published["at"].to_numpy(),
        topic=np.asarray(pc.index_in(published["word"], topics).to_numpy(), np.int64),
        cadence=GapCounts(run.node_numbers(tally["u"]), run.node_numbers(tally["v"]), *counts),
        volumes=_volumes(run),
        rate=rate,
    )
    return seen, topics.to_pylist() or [""]


def _rounds(run: GroupedRun, activity: pa.Table, length_us: int) -> ActivityRounds:
    number = activity["at"].to_numpy()
    first = int(number.min()) if len(number) else 0
    did = np.zeros((int(number.max(initial=first - 1)) + 1 - first, len(run.names)))
    did[number - first, run.node_numbers(activity["u"])] = activity["share"].to_numpy()
    return ActivityRounds(length_us, first, did)


def _volumes(run: GroupedRun) -> ByteVolumes | None:
    counted = run.table(VOLUMES)
    number, arriving, size = (counted[name].to_numpy() for name in ("at", "number", "share"))
    return ByteVolumes.from_rows(number, run.node_numbers(counted["u"]), arriving, size, len(run.names))


_LINKS: Final = "links"
_PRESENCE: Final = "there"
_PUBLISHED: Final = "published"
