"""From the table `insiders` to `CoalitionObservations`: aggregation on Spark, then arrays inside a task.

Insiders write a row for every message that comes or goes. Of these, the activity of a link in an epoch is a few bits
and a time, and of an advert only the first sender counts. Both are aggregations with small states, so the largest table
is reduced where it lies. Only the aggregations that a chosen attacker needs are made. All rows of a run go to one task
(`grouped_tables`) and become arrays over nodes, links and epochs, for each topic. The coalition knows its own members:
messages among them are left out where they tell nothing.

Frames have the columns of `insiders` and a column `topic`. Kinds are those of the wire's messages, prefixed with `in:`
or `out:`. A stem that already climbs to the root says so in `about`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values
from veilcast.lab.attack.insider.observations import (
    CoalitionObservations,
    HeardAdverts,
    HeardChains,
    PublicKnowledge,
    infer_origins,
)
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.link_observations import (
    ASKED,
    AWAY,
    FOLLOWED,
    INVITED,
    RECRUITED,
    REFUSED,
    SILENT,
    LinkObservations,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def select_observers(insiders: DataFrame) -> DataFrame:
    """Columns run, node: the coalition."""
    return insiders.selectExpr("run", "observer as node").distinct()


def select_honest_peers(insiders: DataFrame) -> DataFrame:
    """The rows whose peer is not in the coalition."""
    from pyspark.sql import functions as sql

    ours = select_observers(insiders).withColumnRenamed("node", "peer")
    return insiders.join(sql.broadcast(ours), ["run", "peer"], "left_anti")


def aggregate_sights(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, sight, t_us: a code of the insiders' view, and its first time."""
    from pyspark.sql import functions as sql

    def was(kind: str) -> Column:
        return sql.max(sql.col("kind") == kind)

    asked = sql.col("asked")
    code = (
        sql.when(asked & sql.col("invited_by_us"), RECRUITED)
        .when(asked, ASKED)
        .when(sql.col("followed"), FOLLOWED)
        .when(sql.col("invited"), INVITED)
        .otherwise(REFUSED)
    )
    return (
        honest.where(sql.col("kind").isin(*_OF_LINKS.values()))
        .groupBy("run", "topic", "epoch", "observer", "peer")
        .agg(
            *(was(kind).alias(name) for name, kind in _OF_LINKS.items()),
            sql.min(sql.when(sql.col("kind") == _OF_LINKS["asked"], sql.col("t_us"))).alias("t_us"),
        )
        # An invitation alone, without an answer, says nothing.
        .where("asked or followed or invited or refused")
        .select("run", "topic", "epoch", "observer", "peer", code.cast("bigint").alias("sight"), "t_us")
    )


def first_times(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, t_us: the first message of a topic in an epoch."""
    from pyspark.sql import functions as sql

    return insiders.groupBy("run", "topic", "epoch").agg(sql.min("t_us").alias("t_us"))


def own_origins(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node: the insider that a flood began with, if one sent an advert before any came."""
    from pyspark.sql import functions as sql

    adverts = insiders.where("kind in ('in:Advert', 'out:Advert')")
    first = sql.min(sql.struct("t_us", "kind", "observer")).alias("first")
    begun = adverts.groupBy("run", "topic", "epoch").agg(first).where("first.kind = 'out:Advert'")
    return begun.select("run", "topic", "epoch", sql.col("first.observer").alias("node"))


def select_first_adverts(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, message, peer: the first sender of each advert, once for each insider that heard it
    then."""
    from pyspark.sql import functions as sql

    advert = ["run", "topic", "epoch", "message"]
    heard = honest.where("kind = 'in:Advert'").select(*advert, "t_us", "peer")
    first = heard.groupBy(*advert).agg(sql.min("t_us").alias("t_us"))
    # There are few adverts beside their receivers, so a broadcast avoids moving the received rows.
    return heard.join(sql.broadcast(first), [*advert, "t_us"], "left_semi").drop("t_us")


def select_first_chains(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node, chain: the value of each neighbour's first advert of an epoch."""
    from pyspark.sql import functions as sql

    adverts = honest.where("kind = 'in:Advert' and length(chain) > 0")
    first = sql.min(sql.struct("t_us", "message", "chain"))["chain"].alias("chain")
    return adverts.groupBy("run", "topic", "epoch", sql.col("peer").alias("node")).agg(first)


def select_handed_names(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, about: the names that shell games hand over."""
    games = insiders.where("kind in ('in:SwapAsk', 'in:SwapAnswer', 'in:SwapCommit') and about != ''")
    return games.select("run", "topic", "epoch", "observer", "peer", "about")


def select_stems(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, t_us, observer, peer, climbs: the senders of publications on their way to the root."""
    from pyspark.sql import functions as sql

    climbs = (sql.col("about") == CLIMBS).cast("bigint").alias("climbs")
    return insiders.where("kind = 'in:Stem'").select("run", "topic", "epoch", "t_us", "observer", "peer", climbs)


def count_notifications(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, notes: the number of notifications that reached the coalition."""
    from pyspark.sql import functions as sql

    notes = insiders.where("kind = 'in:Notify'").groupBy("run", "topic", "epoch")
    return notes.agg(sql.countDistinct("message").alias("notes"))


def select_tables(
    insiders: DataFrame, topology: DataFrame, presence: DataFrame, needs: Set[str], roots: DataFrame | None
) -> Iterator[RunTable]:
    """The tables that `needs` asks for. The rows have a column `topic`. `roots` (run, topic, epoch, node) says where
    floods begin, if that is public."""
    yield RunTable(_LINKS, topology, {"u": "u", "v": "v"})
    yield RunTable(_PRESENCE, presence, {"at": "epoch", "u": "node"})
    yield RunTable(_COALITION, select_observers(insiders), {"u": "node"})
    honest = select_honest_peers(insiders)
    if ORIGINS in needs and roots is None:
        needs = needs | {ADVERTS, CHAINS}
    on_link = {"at": "epoch", "word": "topic", "u": "observer", "v": "peer"}
    of_node = {"at": "epoch", "word": "topic", "u": "node"}
    if SIGHTS in needs:
        yield RunTable(SIGHTS, aggregate_sights(honest), on_link | {"number": "sight", "share": "cast(t_us as double)"})
        yield RunTable(_NAMES, select_handed_names(insiders), on_link | {"w": "about"})
        yield RunTable(_BEGAN, first_times(insiders), {"at": "epoch", "word": "topic", "number": "t_us"})
    if ADVERTS in needs:
        yield RunTable(ADVERTS, select_first_adverts(honest), of_node | {"u": "peer", "value": "message"})
    if CHAINS in needs:
        yield RunTable(CHAINS, select_first_chains(honest), of_node | {"value": "chain"})
    if STEMS in needs:
        yield RunTable(STEMS, select_stems(insiders), on_link | {"number": "t_us", "share": "cast(climbs as double)"})
    if NOTES in needs:
        yield RunTable(NOTES, count_notifications(insiders), {"at": "epoch", "word": "topic", "number": "notes"})
    if ORIGINS in needs:
        yield RunTable(ORIGINS, own_origins(insiders) if roots is None else roots, of_node)


def find_topics(run: GroupedRun) -> list[str]:
    """The topics that the coalition heard of; a nameless one if it heard of none."""
    return distinct_values([run.table(kind)["word"] for kind in _OF_TOPICS]).to_pylist() or [""]


def mark_heard_topics(run: GroupedRun, topics: list[str]) -> NDArray[np.bool_]:
    """Epochs x topics: whether the coalition heard of the topic."""
    epochs, began = _epochs(run), run.table(_BEGAN)
    mask = np.zeros((len(epochs), len(topics)), np.bool_)
    places = pc.index_in(began["word"], pa.array(topics, pa.string())).to_numpy()
    mask[np.searchsorted(epochs, began["at"].to_numpy()), places] = True
    return mask


def build_coalition(
    run: GroupedRun, topic: str, hop_us: int | None, known: PublicKnowledge | None = None
) -> CoalitionObservations:
    """With `hop_us`, the time that a message takes, answers to adverts can be timed."""
    links, there, ours = run.table(_LINKS), run.table(_PRESENCE), run.table(_COALITION)
    adverts, chains, stems, notes = (run.table(kind, topic) for kind in (ADVERTS, CHAINS, STEMS, NOTES))
    nodes, epochs = len(run.names), _epochs(run)
    graph = from_edges(nodes, run.node_numbers(links["u"]), run.node_numbers(links["v"]))
    enemy, present = np.zeros(nodes, np.bool_), np.zeros((len(epochs), nodes), np.bool_)
    enemy[run.node_numbers(ours["u"])] = True

    def rows(sheet: pa.Table) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(epochs, sheet["at"].to_numpy()), np.int64)

    present[rows(there), run.node_numbers(there["u"])] = True
    heard = HeardAdverts(rows(adverts), _number_values(adverts["value"]), run.node_numbers(adverts["u"]))
    held = HeardChains(rows(chains), run.node_numbers(chains["u"]), chains["value"].to_pylist())
    known_origins = run.table(ORIGINS, topic)
    known_origins = known_origins.filter(np.isin(known_origins["at"].to_numpy(), epochs))
    everywhere = len(np.unique(rows(known_origins))) == len(epochs)
    origin = np.zeros(len(epochs), np.int32) if everywhere else infer_origins(graph, len(epochs), heard, held)
    origin[rows(known_origins)] = run.node_numbers(known_origins["u"])
    stems = stems.sort_by([("at", "ascending"), ("number", "ascending")])
    observer, peer = run.node_numbers(stems["u"]), run.node_numbers(stems["v"])
    passed = np.column_stack([rows(stems), observer, peer, observer, stems["share"].to_numpy()]).astype(np.int32)
    read = np.zeros(len(epochs), np.int64)
    read[rows(notes)] = notes["number"].to_numpy()
    seen = _observe_links(run, topic, graph, enemy, present, origin, epochs, hop_us)
    return CoalitionObservations(graph, enemy, seen, passed, heard, held, read, known or PublicKnowledge())


def _epochs(run: GroupedRun) -> NDArray[np.int64]:
    """All epochs in which a node was present or a message was heard: meshes form before their epoch begins."""
    kinds = (_PRESENCE, *_OF_TOPICS)
    return np.asarray(np.unique(np.concatenate([run.table(kind)["at"].to_numpy() for kind in kinds])), np.int64)


def _observe_links(
    run: GroupedRun,
    topic: str,
    graph: Graph,
    enemy: NDArray[np.bool_],
    present: NDArray[np.bool_],
    origin: NDArray[np.int32],
    epochs: NDArray[np.int64],
    hop_us: int | None,
) -> LinkObservations:
    """The events on each link between an insider and an honest neighbour; on most links, nothing."""
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int32), graph.degrees)
    outward = enemy[ends] & ~enemy[graph.targets]
    observer, peer = ends[outward], graph.targets[outward]
    seen = np.where(present[:, peer], SILENT, AWAY).astype(np.int8)
    delay = np.full(seen.shape, -1, np.int16)

    sights, names, began = run.table(SIGHTS, topic), run.table(_NAMES, topic), run.table(_BEGAN, topic)
    pairs, wanted = _pairs(observer, peer), _pairs(run.node_numbers(sights["u"]), run.node_numbers(sights["v"]))
    link = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    # A peer that is no neighbour by the topology, as after a swap of places, says nothing about paths.
    known = np.flatnonzero(pairs[link] == wanted) if len(pairs) else np.empty(0, np.int64)
    row, link, sight = np.searchsorted(epochs, sights["at"].to_numpy()[known]), link[known], sights["number"].to_numpy()
    seen[row, link] = sight[known]
    if hop_us is not None:
        start = np.zeros(len(epochs))
        start[np.searchsorted(epochs, began["at"].to_numpy())] = began["number"].to_numpy()
        asked = sight[known] == ASKED
        hops = np.round((sights["share"].to_numpy()[known][asked] - start[row[asked]]) / hop_us)
        delay[row[asked], link[asked]] = np.minimum(hops, np.iinfo(np.int16).max)

    named = [run.node_numbers(names[column]) for column in ("u", "v", "w")]
    nothing = np.zeros(len(names), np.int32)
    at = np.searchsorted(epochs, names["at"].to_numpy())
    handed = np.column_stack([at, nothing, named[0], named[1], nothing, named[2]]).astype(np.int32)
    return LinkObservations(observer, peer, origin, present, seen, delay, handed)


def _pairs(observer: NDArray[np.int32], peer: NDArray[np.int32]) -> NDArray[np.int64]:
    return (observer.astype(np.int64) << 32) | peer


def _number_values(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Equal numbers for equal bytes."""
    return np.asarray(pc.dictionary_encode(values).combine_chunks().indices.to_numpy(), np.int64)


CLIMBS: Final = "climbs"
_OF_LINKS: Final = {
    "asked": "in:Subscribe",
    "invited_by_us": "out:Invite",
    "followed": "out:Subscribe",
    "invited": "in:Invite",
    "refused": "in:Decline",
}
ADVERTS: Final = "adverts"
CHAINS: Final = "chains"
NOTES: Final = "notes"
ORIGINS: Final = "origins"
SIGHTS: Final = "sights"
STEMS: Final = "stems"
_LINKS: Final = "links"
_PRESENCE: Final = "there"
_COALITION: Final = "ours"
_NAMES: Final = "names"
_BEGAN: Final = "began"
_OF_TOPICS: Final = (ADVERTS, CHAINS, NOTES, SIGHTS, STEMS, _NAMES, _BEGAN)
