"""What a global observer makes of its cells: the table `cells` in, the table `guess_roles` out, of any number of runs.

Spark brings cells down to what attackers work on (`spark_job`), each kind only if somebody asks for it, and all of a
run to one task (`folder`); there the attackers score every node (`outsiders`). A run must fit into a task as its notes
and counts do, not as its cells.


Gathering: from all cells that an observer has, however many, down to what attackers work on.

A record of a network is mostly heartbeats. What attackers ask for is small beside it: which links there are, who was
there, which cells are notes, how much each node got in a stretch of time. Each of these is one aggregation, which Spark
does on both sides of a shuffle, so that what travels is as small as what comes out; nothing is sorted.

Notes are told from heartbeats as in `waves`, by counts instead of rows: how many cells of a size a link carries in
which millisecond of a heartbeat. Where a heartbeat is whole milliseconds the size that is found is the same.

Frames have the columns of `cells`; each may be gone through more than once, so what is dear to read should be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab.attack.observer.flow_correlation import BINS_PER_HEARTBEAT
from veilcast.lab.attack.observer.publication_waves import PHASE_BIN_US, notification_size
from veilcast.lab.attack.spark_grouping import distinct_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.observations import ActivityRounds, ByteVolumes, CaptureObservations
from veilcast.lab.attack.observer import cadence
from veilcast.lab.attack.observer.attackers import (
    ACTIVITY,
    ATTACKS,
    CADENCE,
    NOTES,
    VOLUMES,
    WIRE_ATTACKERS,
    WireAttacker,
)
from veilcast.lab.attack.observer.cadence import GapCounts
from veilcast.lab.attack.spark_grouping import GroupedRun, RunTable, make_guesses, union_tables
from veilcast.lab.models.graph import from_edges
from veilcast.lab.tables import GuessRow


def aggregate_links(cells: DataFrame) -> DataFrame:
    """Columns run, epoch, u, v: who had to do with whom in each epoch, u < v, as `topology` has it."""
    from pyspark.sql import functions as sql

    # First by link and direction, as the rows are; what is left for comparing names is little.
    seen = cells.groupBy("run", "epoch", "src", "dst").agg(sql.count("*").alias("cells"))
    ends = sql.least("src", "dst").alias("u"), sql.greatest("src", "dst").alias("v")
    return seen.where("src != dst").select("run", "epoch", *ends).distinct()


def aggregate_presence(links: DataFrame) -> DataFrame:
    """Columns run, epoch, node: who had to do with anybody, as `presence` has it."""
    from pyspark.sql import functions as sql

    return links.select("run", "epoch", sql.explode(sql.array("u", "v")).alias("node")).distinct()


def select_notifications(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, epoch, t_us, src, dst: the cells that look like copies of publications."""
    from pyspark.sql import functions as sql

    found = cells.join(sql.broadcast(find_notification_sizes(cells, heartbeat_us)), ["run", "size"])
    return found.select("run", "epoch", "t_us", "src", "dst")


def find_notification_sizes(cells: DataFrame, heartbeat_us: int) -> DataFrame:
    """Columns run, size: how long notes are, in each run in which anything looks like one."""
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
    """Columns run, bin, node, arriving, bytes: what left each node, and what reached it, in parts of a heartbeat."""
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
    """Columns run, round, node, bytes: how much each node got in rounds of this length."""
    from pyspark.sql import functions as sql

    number = sql.expr(f"t_us div {round_us}").alias("round")
    return cells.groupBy("run", number, sql.col("dst").alias("node")).agg(sql.sum("size").alias("bytes"))


def guess_roles(
    cells: DataFrame,
    topology: DataFrame | None = None,
    presence: DataFrame | None = None,
    *,
    heartbeat_us: int,
    attacks: Collection[str] = ATTACKS,
    rate: float = 0.1,
    published: DataFrame | None = None,
    notes: DataFrame | None = None,
) -> DataFrame:
    """Of every node that was seen, what each attack holds of it.

    Without a topology the overlay is the links that carry anything, and without presence whoever had to do with anybody
    was there. `rate` is the share of readers, as far as it is known. `published` (run, topic, t_us) is for an observer
    who reads along, and knows when something came; `notes` (run, epoch, t_us, src, dst) for one who knows which cells
    are copies of publications.
    """
    chosen = _chosen(attacks)
    needs = {each.needs for each in chosen}
    links = aggregate_links(cells) if topology is None else topology
    there = aggregate_presence(links) if presence is None else presence
    sheets = [RunTable(_LINK, links, {"u": "u", "v": "v"}), RunTable(_THERE, there, {"at": "epoch", "u": "node"})]
    if needs & {NOTES, ACTIVITY}:
        notes = select_notifications(cells, heartbeat_us) if notes is None else notes
        sheets.append(RunTable(NOTES, notes, {"at": "t_us", "u": "src", "v": "dst", "number": "epoch"}))
    if ACTIVITY in needs:
        activity = aggregate_activity(cells, heartbeat_us)
        sheets.append(RunTable(ACTIVITY, activity, {"at": "round", "u": "node", "share": "double(bytes)"}))
    if CADENCE in needs:
        columns = {"at": "gap", "u": "src", "v": "dst", "number": "size", "share": "double(cells)"}
        sheets.append(RunTable(CADENCE, cadence.count_gaps_frame(cells), columns))
    if VOLUMES in needs:
        columns = {"at": "bin", "u": "node", "number": "bigint(arriving)", "share": "double(bytes)"}
        sheets.append(RunTable(VOLUMES, aggregate_volumes(cells, heartbeat_us), columns))
    if published is not None:
        sheets.append(RunTable(_PUBLISHED, published, {"at": "t_us", "word": "topic"}))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guessed(GroupedRun(rows), chosen, heartbeat_us, rate)

    return union_tables(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(GuessRow))


def _chosen(attacks: Collection[str]) -> list[WireAttacker]:
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"no attack from outside is called {attack!r}; there are {', '.join(ATTACKS)}")
    return [each for each in WIRE_ATTACKERS if each.attack in attacks]


def _guessed(folder: GroupedRun, chosen: list[WireAttacker], heartbeat_us: int, rate: float) -> pa.Table:
    record, topics = _record(folder, heartbeat_us)
    parts = []
    for each in chosen:
        found = each.scores(record, rate)
        # Who cannot tell topics apart says one thing of all of them.
        for topic, scores in zip(topics if len(found) == len(topics) else [""], found, strict=True):
            epochs = len(record.present)
            parts.append(make_guesses(folder.run, each.attack, epochs, 0, topic, each.role, folder.names, scores))
    return pa.concat_tables(parts)


def _record(folder: GroupedRun, heartbeat_us: int) -> tuple[CaptureObservations, list[str]]:
    """And the topics that are known; one without a name, if none are."""
    links, there, notes, activity, tally, published = map(
        folder.table, (_LINK, _THERE, NOTES, ACTIVITY, CADENCE, _PUBLISHED)
    )
    epochs = np.union1d(there["at"].to_numpy(), notes["number"].to_numpy())
    present = np.zeros((len(epochs), len(folder.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), folder.node_numbers(there["u"])] = True
    # Of copies at the same time the order is any, but always the same.
    notes = notes.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    topics = distinct_values([published["word"]])
    counts = (tally["at"].to_numpy(), tally["number"].to_numpy(), tally["share"].to_numpy().astype(np.int64))
    record = CaptureObservations(
        graph=from_edges(len(folder.names), folder.node_numbers(links["u"]), folder.node_numbers(links["v"])),
        present=present,
        src=folder.node_numbers(notes["u"]),
        dst=folder.node_numbers(notes["v"]),
        at=notes["at"].to_numpy(),
        epoch=np.searchsorted(epochs, notes["number"].to_numpy()),
        rounds=_rounds(folder, activity, heartbeat_us),
        published=published["at"].to_numpy(),
        topic=np.asarray(pc.index_in(published["word"], topics).to_numpy(), np.int64),
        cadence=GapCounts(folder.node_numbers(tally["u"]), folder.node_numbers(tally["v"]), *counts),
        volumes=_volumes(folder),
    )
    return record, topics.to_pylist() or [""]


def _rounds(folder: GroupedRun, activity: pa.Table, length_us: int) -> ActivityRounds:
    number = activity["at"].to_numpy()
    first = int(number.min()) if len(number) else 0
    did = np.zeros((int(number.max(initial=first - 1)) + 1 - first, len(folder.names)))
    did[number - first, folder.node_numbers(activity["u"])] = activity["share"].to_numpy()
    return ActivityRounds(length_us, first, did)


def _volumes(folder: GroupedRun) -> ByteVolumes | None:
    counted = folder.table(VOLUMES)
    number, arriving, size = (counted[name].to_numpy() for name in ("at", "number", "share"))
    return ByteVolumes.from_rows(number, folder.node_numbers(counted["u"]), arriving, size, len(folder.names))


_LINK: Final = "links"
_THERE: Final = "there"
_PUBLISHED: Final = "published"
