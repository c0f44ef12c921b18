"""A dossier: all that a coalition overheard in a run, brought to one task, and put together there topic by topic.

Spark brings rows down to what attackers work on (`coalition_tables`), each kind only if somebody asks for it, and all
of a run
to one task (`folder`). There it becomes a `CoalitionObservations` for each topic: arrays over nodes, links and epochs.


Overheard: from all that members of a coalition wrote down, however much, to what their attackers work on.

Insiders write a row for every message that comes or goes. Of these, what happened on a link in an epoch is a few bits
and a time; of an advert, it is who was first with it. Both are aggregations with small states: what is most is first
brought down on the side where it lies. The coalition knows its own: what they said to one another is left out where it
would tell nothing.

Frames have the columns of `insiders` and one more, `topic`. Kinds are those of the wire's messages, with `in:` or
`out:` before them; a stem that climbs to the root already says so in `about`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from veilcast.lab.models.link_observations import ASKED, FOLLOWED, INVITED, RECRUITED, REFUSED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
from collections.abc import Iterator, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.insider.observations import (
    CoalitionObservations,
    HeardAdverts,
    HeardChains,
    PublicKnowledge,
    infer_origins,
)
from veilcast.lab.attack.spark_grouping import GroupedRun, RunTable, distinct_values
from veilcast.lab.models.graph import Graph, from_edges
from veilcast.lab.models.link_observations import AWAY, SILENT, LinkObservations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def select_observers(insiders: DataFrame) -> DataFrame:
    """Columns run, node: the coalition."""
    return insiders.selectExpr("run", "observer as node").distinct()


def select_honest_peers(insiders: DataFrame) -> DataFrame:
    """The rows whose peer is not of the coalition."""
    from pyspark.sql import functions as sql

    ours = select_observers(insiders).withColumnRenamed("node", "peer")
    return insiders.join(sql.broadcast(ours), ["run", "peer"], "left_anti")


def aggregate_sights(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, sight, t_us: one of the codes of `aggregate_sights`, and since
    when.
    """
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
    """Columns run, topic, epoch, t_us: when the first was heard of a topic in an epoch."""
    from pyspark.sql import functions as sql

    return insiders.groupBy("run", "topic", "epoch").agg(sql.min("t_us").alias("t_us"))


def own_origins(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node: which member a flood began with, where one sent an advert before any came."""
    from pyspark.sql import functions as sql

    adverts = insiders.where("kind in ('in:Advert', 'out:Advert')")
    first = sql.min(sql.struct("t_us", "kind", "observer")).alias("first")
    begun = adverts.groupBy("run", "topic", "epoch").agg(first).where("first.kind = 'out:Advert'")
    return begun.select("run", "topic", "epoch", sql.col("first.observer").alias("node"))


def select_first_adverts(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, message, peer: from whom each advert came first, once for each who had it so."""
    from pyspark.sql import functions as sql

    advert = ["run", "topic", "epoch", "message"]
    heard = honest.where("kind = 'in:Advert'").select(*advert, "t_us", "peer")
    first = heard.groupBy(*advert).agg(sql.min("t_us").alias("t_us"))
    # Adverts are few beside all who hear of them, so nothing of what was heard need be moved to be compared.
    return heard.join(sql.broadcast(first), [*advert, "t_us"], "left_semi").drop("t_us")


def select_first_chains(honest: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, node, chain: the value with which each neighbour's first advert of an epoch came."""
    from pyspark.sql import functions as sql

    adverts = honest.where("kind = 'in:Advert' and length(chain) > 0")
    first = sql.min(sql.struct("t_us", "message", "chain"))["chain"].alias("chain")
    return adverts.groupBy("run", "topic", "epoch", sql.col("peer").alias("node")).agg(first)


def select_handed_names(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, observer, peer, about: the names that shell games hand over."""
    games = insiders.where("kind in ('in:SwapAsk', 'in:SwapAnswer', 'in:SwapCommit') and about != ''")
    return games.select("run", "topic", "epoch", "observer", "peer", "about")


def select_stems(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, t_us, observer, peer, climbs: from whom publications came on their way to the root."""
    from pyspark.sql import functions as sql

    climbs = (sql.col("about") == CLIMBS).cast("bigint").alias("climbs")
    return insiders.where("kind = 'in:Stem'").select("run", "topic", "epoch", "t_us", "observer", "peer", climbs)


def count_notifications(insiders: DataFrame) -> DataFrame:
    """Columns run, topic, epoch, notes: how many notes came to the coalition."""
    from pyspark.sql import functions as sql

    notes = insiders.where("kind = 'in:Notify'").groupBy("run", "topic", "epoch")
    return notes.agg(sql.countDistinct("message").alias("notes"))


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


def select_tables(
    insiders: DataFrame, topology: DataFrame, presence: DataFrame, needs: Set[str], roots: DataFrame | None
) -> Iterator[RunTable]:
    """What is needed of these rows, which have a column `topic`; `roots` (run, topic, epoch, node) says where floods
    begin, if that is public."""
    yield RunTable(_LINK, topology, {"u": "u", "v": "v"})
    yield RunTable(_THERE, presence, {"at": "epoch", "u": "node"})
    yield RunTable(_OURS, select_observers(insiders), {"u": "node"})
    honest = select_honest_peers(insiders)
    if ORIGINS in needs and roots is None:
        needs = needs | {ADVERTS, CHAINS}
    on_link = {"at": "epoch", "word": "topic", "u": "observer", "v": "peer"}
    of_node = {"at": "epoch", "word": "topic", "u": "node"}
    if SIGHTS in needs:
        yield RunTable(SIGHTS, aggregate_sights(honest), on_link | {"number": "sight", "share": "double(t_us)"})
        yield RunTable(_NAMES, select_handed_names(insiders), on_link | {"w": "about"})
        yield RunTable(_BEGAN, first_times(insiders), {"at": "epoch", "word": "topic", "number": "t_us"})
    if ADVERTS in needs:
        yield RunTable(ADVERTS, select_first_adverts(honest), of_node | {"u": "peer", "value": "message"})
    if CHAINS in needs:
        yield RunTable(CHAINS, select_first_chains(honest), of_node | {"value": "chain"})
    if STEMS in needs:
        yield RunTable(STEMS, select_stems(insiders), on_link | {"number": "t_us", "share": "double(climbs)"})
    if NOTES in needs:
        yield RunTable(NOTES, count_notifications(insiders), {"at": "epoch", "word": "topic", "number": "notes"})
    if ORIGINS in needs:
        yield RunTable(ORIGINS, own_origins(insiders) if roots is None else roots, of_node)


def find_topics(folder: GroupedRun) -> list[str]:
    """Of which anything was overheard; one without a name, if there are none."""
    return distinct_values([folder.table(kind)["word"] for kind in _OF_TOPICS]).to_pylist() or [""]


def mark_heard_topics(folder: GroupedRun, topics: list[str]) -> NDArray[np.bool_]:
    """Epochs x topics, all that there are: whether anything was overheard."""
    epochs, began = _epochs(folder), folder.table(_BEGAN)
    mask = np.zeros((len(epochs), len(topics)), np.bool_)
    places = pc.index_in(began["word"], pa.array(topics, pa.string())).to_numpy()
    mask[np.searchsorted(epochs, began["at"].to_numpy()), places] = True
    return mask


def build_coalition(
    folder: GroupedRun, topic: str, hop_us: int | None, known: PublicKnowledge | None = None
) -> CoalitionObservations:
    """With `hop_us`, the time that a message takes, answers to adverts can be timed."""
    links, there, ours = folder.table(_LINK), folder.table(_THERE), folder.table(_OURS)
    adverts, chains, stems, notes = (folder.table(kind, topic) for kind in (ADVERTS, CHAINS, STEMS, NOTES))
    nodes, epochs = len(folder.names), _epochs(folder)
    graph = from_edges(nodes, folder.node_numbers(links["u"]), folder.node_numbers(links["v"]))
    enemy, present = np.zeros(nodes, np.bool_), np.zeros((len(epochs), nodes), np.bool_)
    enemy[folder.node_numbers(ours["u"])] = True

    def rows(sheet: pa.Table) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(epochs, sheet["at"].to_numpy()), np.int64)

    present[rows(there), folder.node_numbers(there["u"])] = True
    heard = HeardAdverts(rows(adverts), _numbered(adverts["value"]), folder.node_numbers(adverts["u"]))
    held = HeardChains(rows(chains), folder.node_numbers(chains["u"]), chains["value"].to_pylist())
    told_of = folder.table(ORIGINS, topic)
    told_of = told_of.filter(np.isin(told_of["at"].to_numpy(), epochs))
    everywhere = len(np.unique(rows(told_of))) == len(epochs)
    origin = np.zeros(len(epochs), np.int32) if everywhere else infer_origins(graph, len(epochs), heard, held)
    origin[rows(told_of)] = folder.node_numbers(told_of["u"])
    stems = stems.sort_by([("at", "ascending"), ("number", "ascending")])
    observer, peer = folder.node_numbers(stems["u"]), folder.node_numbers(stems["v"])
    passed = np.column_stack([rows(stems), observer, peer, observer, stems["share"].to_numpy()]).astype(np.int32)
    read = np.zeros(len(epochs), np.int64)
    read[rows(notes)] = notes["number"].to_numpy()
    seen = _seen(folder, topic, graph, enemy, present, origin, epochs, hop_us)
    return CoalitionObservations(graph, enemy, seen, passed, heard, held, read, known or PublicKnowledge())


def _epochs(folder: GroupedRun) -> NDArray[np.int64]:
    """All in which somebody was there, or anything was overheard: meshes form before their epoch comes."""
    kinds = (_THERE, *_OF_TOPICS)
    return np.asarray(np.unique(np.concatenate([folder.table(kind)["at"].to_numpy() for kind in kinds])), np.int64)


def _seen(
    folder: GroupedRun,
    topic: str,
    graph: Graph,
    enemy: NDArray[np.bool_],
    present: NDArray[np.bool_],
    origin: NDArray[np.int32],
    epochs: NDArray[np.int64],
    hop_us: int | None,
) -> LinkObservations:
    """What happened on each link between a member and an honest neighbour; on most, nothing."""
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int32), graph.degrees)
    outward = enemy[ends] & ~enemy[graph.targets]
    observer, peer = ends[outward], graph.targets[outward]
    seen = np.where(present[:, peer], SILENT, AWAY).astype(np.int8)
    delay = np.full(seen.shape, -1, np.int16)

    sights, names, began = folder.table(SIGHTS, topic), folder.table(_NAMES, topic), folder.table(_BEGAN, topic)
    pairs, wanted = _pairs(observer, peer), _pairs(folder.node_numbers(sights["u"]), folder.node_numbers(sights["v"]))
    link = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    # Who is no neighbour by the topology, as after a swap of places, says nothing of a way.
    known = np.flatnonzero(pairs[link] == wanted) if len(pairs) else np.empty(0, np.int64)
    row, link, sight = np.searchsorted(epochs, sights["at"].to_numpy()[known]), link[known], sights["number"].to_numpy()
    seen[row, link] = sight[known]
    if hop_us is not None:
        start = np.zeros(len(epochs))
        start[np.searchsorted(epochs, began["at"].to_numpy())] = began["number"].to_numpy()
        asked = sight[known] == ASKED
        hops = np.round((sights["share"].to_numpy()[known][asked] - start[row[asked]]) / hop_us)
        delay[row[asked], link[asked]] = np.minimum(hops, np.iinfo(np.int16).max)

    named = [folder.node_numbers(names[column]) for column in ("u", "v", "w")]
    nothing = np.zeros(len(names), np.int32)
    at = np.searchsorted(epochs, names["at"].to_numpy())
    handed = np.column_stack([at, nothing, named[0], named[1], nothing, named[2]]).astype(np.int32)
    return LinkObservations(observer, peer, origin, present, seen, delay, handed)


def _pairs(observer: NDArray[np.int32], peer: NDArray[np.int32]) -> NDArray[np.int64]:
    return (observer.astype(np.int64) << 32) | peer


def _numbered(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """The same number for the same bytes."""
    return np.asarray(pc.dictionary_encode(values).combine_chunks().indices.to_numpy(), np.int64)


_LINK: Final = "links"
_THERE: Final = "there"
_OURS: Final = "ours"
_NAMES: Final = "names"
_BEGAN: Final = "began"
_OF_TOPICS: Final = (ADVERTS, CHAINS, NOTES, SIGHTS, STEMS, _NAMES, _BEGAN)
