"""From the table `insiders` to `CoalitionObservations`: relations on either engine, then arrays inside a task.

Insiders write a row for every message that comes or goes. Of these, the activity of a link in an epoch is a few bits
and a time, and of an advert only the first sender counts. Both are aggregations with small states, so the largest table
is reduced where it lies. Only the relations that a chosen attacker needs are made. All rows of a run go to one task
(`grouped_tables`) and become arrays over nodes, links and epochs, for each topic. The coalition knows its own members:
messages among them are left out where they tell nothing.

Relations read the columns of `insiders` and a column `topic`. Kinds are those of the wire's messages, prefixed with
`in:` or `out:`. A stem that already climbs to the root says so in `about`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values
from veilcast.lab.attack.insider.observations import (
    Classifiers,
    CoalitionObservations,
    HeardAdverts,
    HeardChains,
    PublicKnowledge,
    infer_origins,
)
from veilcast.lab.attack.table_engine import AnyTable, engine_of
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


def name_topics(insiders: AnyTable, tokens: AnyTable | None) -> AnyTable:
    """The same rows with a column `topic`, of those tokens that the coalition knows; without `tokens` all rows are
    about one topic without a name."""
    if tokens is None:
        return engine_of(insiders).view("SELECT *, '' AS topic FROM {insiders}", insiders=insiders)
    return engine_of(insiders).query(_NAMED, insiders=insiders, tokens=tokens)


def name_tokens(insiders: AnyTable) -> AnyTable:
    """The rows with a token, whose digits stand for the topic."""
    return engine_of(insiders).query(_BY_BYTES, insiders=insiders)


def select_observers(insiders: AnyTable) -> AnyTable:
    """Columns run, node: the coalition."""
    return engine_of(insiders).query("SELECT DISTINCT run, observer AS node FROM {insiders}", insiders=insiders)


def select_honest_peers(insiders: AnyTable, observers: AnyTable) -> AnyTable:
    """The rows whose peer is not in the coalition."""
    return engine_of(insiders).view(_HONEST, insiders=insiders, observers=observers)


def aggregate_sights(honest: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, observer, peer, sight, t_us: a code of the insiders' view, and its first time.

    What was said last stands: a subscription that was taken back says nothing.
    """
    return engine_of(honest).query(_SIGHTS_OF_LINKS, honest=honest)


def first_times(insiders: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, t_us: the first message of a topic in an epoch."""
    return engine_of(insiders).query(_FIRST_TIMES, insiders=insiders)


def own_origins(insiders: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, node: the insider that a flood began with, if one sent an advert before any came."""
    return engine_of(insiders).query(_OWN_ORIGINS, insiders=insiders)


def select_first_adverts(honest: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, message, peer: the first sender of each advert, once for each insider that heard it
    then."""
    return engine_of(honest).query(_FIRST_ADVERTS, honest=honest)


def select_first_chains(honest: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, observer, peer, chain: the value of the first advert with one on each link."""
    return engine_of(honest).query(_FIRST_CHAINS, honest=honest)


def select_handed_names(insiders: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, observer, peer, about: the names that shell games hand over."""
    return engine_of(insiders).query(_HANDED_NAMES, insiders=insiders)


def select_stems(insiders: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, t_us, observer, peer, climbs: the senders of publications on their way to the root."""
    return engine_of(insiders).query(_STEMS_IN, insiders=insiders)


def count_notifications(insiders: AnyTable) -> AnyTable:
    """Columns run, topic, epoch, notes: the number of notifications that reached the coalition."""
    return engine_of(insiders).query(_NOTES_IN, insiders=insiders)


def select_tables(named: AnyTable, tables: Mapping[str, AnyTable], needs: Set[str]) -> Iterator[RunTable]:
    """The tables that `needs` asks for. `named` are rows of `insiders` with a column `topic`; without `roots` among
    `tables` it is not public where floods begin."""
    roots, observers = tables.get("roots"), select_observers(tables["insiders"])
    yield RunTable(LINKS, tables["topology"], {"u": "u", "v": "v"})
    yield RunTable(PRESENCE, tables["presence"], {"at": "epoch", "u": "node"})
    yield RunTable(COALITION, observers, {"u": "node"})
    if "facts" in tables:
        yield RunTable(_FACTS, tables["facts"], {"word": "name", "share": "value"})
    if ORIGINS in needs and roots is None:
        needs = needs | {ADVERTS, CHAINS}
    if needs & {SIGHTS, ADVERTS, CHAINS}:
        honest = select_honest_peers(named, observers)
    on_link = {"at": "epoch", "word": "topic", "u": "observer", "v": "peer"}
    of_node = {"at": "epoch", "word": "topic", "u": "node"}
    if SIGHTS in needs:
        yield RunTable(SIGHTS, aggregate_sights(honest), on_link | {"number": "sight", "share": "cast(t_us as double)"})
        yield RunTable(NAMES, select_handed_names(named), on_link | {"w": "about"})
        yield RunTable(BEGAN, first_times(named), {"at": "epoch", "word": "topic", "number": "t_us"})
    if ADVERTS in needs:
        yield RunTable(ADVERTS, select_first_adverts(honest), of_node | {"u": "peer", "value": "message"})
    if CHAINS in needs:
        yield RunTable(CHAINS, select_first_chains(honest), on_link | {"value": "chain"})
    if STEMS in needs:
        yield RunTable(STEMS, select_stems(named), on_link | {"number": "t_us", "share": "cast(climbs as double)"})
    if NOTES in needs:
        yield RunTable(NOTES, count_notifications(named), {"at": "epoch", "word": "topic", "number": "notes"})
    if ORIGINS in needs:
        yield RunTable(ORIGINS, own_origins(named) if roots is None else roots, of_node)


def read_knowledge(run: GroupedRun, trained: Classifiers | None = None) -> PublicKnowledge:
    """The public parameters among the facts of the run; the defaults where a fact is missing."""
    facts = read_facts(run)
    kinds = {"kept": bool, "waits": bool, "departures": int, "hold": int, "relay_epochs": int}
    given = {name: kinds.get(name, float)(facts[name]) for name in _KNOWN if name in facts}
    return PublicKnowledge(**given, trained=trained or {})


def read_facts(run: GroupedRun) -> dict[str, float]:
    facts = run.table(_FACTS)
    return dict(zip(facts["word"].to_pylist(), facts["share"].to_pylist(), strict=True))


def find_topics(run: GroupedRun) -> list[str]:
    """The topics that the coalition heard of; a nameless one if it heard of none."""
    return distinct_values([run.table(kind)["word"] for kind in _OF_TOPICS]).to_pylist() or [""]


def mark_heard_topics(run: GroupedRun, topics: list[str]) -> NDArray[np.bool_]:
    """Epochs x topics: whether the coalition heard of the topic."""
    epochs, began = find_epochs(run), run.table(BEGAN)
    mask = np.zeros((len(epochs), len(topics)), np.bool_)
    places = pc.index_in(began["word"], pa.array(topics, pa.string())).to_numpy()
    mask[np.searchsorted(epochs, began["at"].to_numpy()), places] = True
    return mask


def build_coalition(run: GroupedRun, topic: str, known: PublicKnowledge | None = None) -> CoalitionObservations:
    """The arrays of one topic. Answers to adverts are timed if the time of a hop is among the facts."""
    links, there, ours = run.table(LINKS), run.table(PRESENCE), run.table(COALITION)
    adverts, chains, stems, notes = (run.table(kind, topic) for kind in (ADVERTS, CHAINS, STEMS, NOTES))
    nodes, epochs = len(run.names), find_epochs(run)
    graph = from_edges(nodes, run.node_numbers(links["u"]), run.node_numbers(links["v"]))
    enemy, present = np.zeros(nodes, np.bool_), np.zeros((len(epochs), nodes), np.bool_)
    enemy[run.node_numbers(ours["u"])] = True

    def rows(sheet: pa.Table) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(epochs, sheet["at"].to_numpy()), np.int64)

    present[rows(there), run.node_numbers(there["u"])] = True
    # Sums over adverts and over links are made in one order, so that equal observations give equal scores.
    adverts = adverts.sort_by([("at", "ascending"), ("value", "ascending"), ("u", "ascending")])
    chains = chains.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    heard = HeardAdverts(rows(adverts), _number_values(adverts["value"]), run.node_numbers(adverts["u"]))
    held = HeardChains(rows(chains), run.node_numbers(chains["v"]), chains["value"].to_pylist())
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
    seen = _observe_links(run, topic, graph, enemy, present, origin, epochs, read_facts(run).get("hop_us"))
    return CoalitionObservations(graph, enemy, seen, passed, heard, held, read, known or PublicKnowledge())


def find_epochs(run: GroupedRun) -> NDArray[np.int64]:
    """All epochs in which a node was present or a message was heard: meshes form before their epoch begins."""
    kinds = (PRESENCE, *_OF_TOPICS)
    return np.asarray(np.unique(np.concatenate([run.table(kind)["at"].to_numpy() for kind in kinds])), np.int64)


def _observe_links(
    run: GroupedRun,
    topic: str,
    graph: Graph,
    enemy: NDArray[np.bool_],
    present: NDArray[np.bool_],
    origin: NDArray[np.int32],
    epochs: NDArray[np.int64],
    hop_us: float | None,
) -> LinkObservations:
    """The events on each link between an insider and an honest neighbour; on most links, nothing."""
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int32), graph.degrees)
    outward = enemy[ends] & ~enemy[graph.targets]
    observer, peer = ends[outward], graph.targets[outward]
    seen = np.where(present[:, peer], SILENT, AWAY).astype(np.int8)
    delay = np.full(seen.shape, -1, np.int16)

    sights, names, began = run.table(SIGHTS, topic), run.table(NAMES, topic), run.table(BEGAN, topic)
    pairs, wanted = (
        pair_numbers(observer, peer),
        pair_numbers(run.node_numbers(sights["u"]), run.node_numbers(sights["v"])),
    )
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


def pair_numbers(observer: NDArray[np.int32], peer: NDArray[np.int32]) -> NDArray[np.int64]:
    """A number for each pair; pairs in order have numbers in order."""
    return (observer.astype(np.int64) << 32) | peer


def _number_values(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Equal numbers for equal bytes."""
    return np.asarray(pc.dictionary_encode(values).combine_chunks().indices.to_numpy(), np.int64)


ADVERTS: Final = "adverts"
CHAINS: Final = "chains"
NOTES: Final = "notes"
ORIGINS: Final = "origins"
SIGHTS: Final = "sights"
STEMS: Final = "stems"
PARTS: Final = (ADVERTS, CHAINS, NOTES, ORIGINS, SIGHTS, STEMS)
LINKS: Final = "links"
PRESENCE: Final = "there"
COALITION: Final = "ours"
NAMES: Final = "names"
BEGAN: Final = "began"
_OF_TOPICS: Final = (ADVERTS, CHAINS, NOTES, SIGHTS, STEMS, NAMES, BEGAN)
_FACTS: Final = "facts"
_KNOWN: Final = ("acting", "kept", "onward", "departures", "hold", "relay_epochs", "waits")
"""Facts that are fields of `PublicKnowledge`."""

CLIMBS: Final = "climbs"
_NAMED: Final = """
SELECT /*+ BROADCAST(t) */ i.*, t.topic FROM {insiders} AS i
JOIN {tokens} AS t ON i.run = t.run AND i.epoch = t.epoch AND i.token = t.token"""
_BY_BYTES: Final = "SELECT *, hex(token) AS topic FROM {insiders} WHERE octet_length(token) > 0"
_HONEST: Final = """
SELECT /*+ BROADCAST(o) */ i.* FROM {insiders} AS i
ANTI JOIN {observers} AS o ON i.run = o.run AND i.peer = o.node"""
# An invitation alone, without an answer, says nothing.
_SIGHTS_OF_LINKS: Final = f"""
SELECT run, topic, epoch, observer, peer, t_us, cast(CASE
    WHEN asked AND invited_by_us > 0 THEN {RECRUITED}
    WHEN asked THEN {ASKED}
    WHEN followed THEN {FOLLOWED}
    WHEN invited > 0 THEN {INVITED}
    ELSE {REFUSED} END AS bigint) AS sight
FROM (
    SELECT run, topic, epoch, observer, peer,
        min(CASE WHEN kind = 'in:Subscribe' THEN t_us END) AS t_us,
        coalesce(max(CASE WHEN kind = 'in:Subscribe' THEN t_us END), -1)
            > coalesce(max(CASE WHEN kind = 'in:Unsubscribe' THEN t_us END), -1) AS asked,
        coalesce(max(CASE WHEN kind = 'out:Subscribe' THEN t_us END), -1)
            > coalesce(max(CASE WHEN kind = 'out:Unsubscribe' THEN t_us END), -1) AS followed,
        count(CASE WHEN kind = 'out:Invite' THEN 1 END) AS invited_by_us,
        count(CASE WHEN kind = 'in:Invite' THEN 1 END) AS invited,
        count(CASE WHEN kind = 'in:Decline' THEN 1 END) AS refused
    FROM {{honest}}
    WHERE kind IN ('in:Subscribe', 'in:Unsubscribe', 'out:Subscribe', 'out:Unsubscribe',
        'in:Invite', 'out:Invite', 'in:Decline')
    GROUP BY run, topic, epoch, observer, peer
) AS said
WHERE asked OR followed OR invited > 0 OR refused > 0"""  # noqa: S608
_FIRST_TIMES: Final = "SELECT run, topic, epoch, min(t_us) AS t_us FROM {insiders} GROUP BY run, topic, epoch"
# Of an advert that comes and one that goes at the same time, the one that comes is the earlier.
_OWN_ORIGINS: Final = """
SELECT a.run, a.topic, a.epoch, min(a.observer) AS node FROM {insiders} AS a
JOIN (
    SELECT run, topic, epoch,
        min(CASE WHEN kind = 'in:Advert' THEN t_us END) AS came,
        min(CASE WHEN kind = 'out:Advert' THEN t_us END) AS went
    FROM {insiders} WHERE kind IN ('in:Advert', 'out:Advert') GROUP BY run, topic, epoch
) AS f ON a.run = f.run AND a.topic = f.topic AND a.epoch = f.epoch AND a.t_us = f.went
WHERE a.kind = 'out:Advert' AND (f.came IS NULL OR f.went < f.came)
GROUP BY a.run, a.topic, a.epoch"""
_FIRST_ADVERTS: Final = """
SELECT /*+ BROADCAST(f) */ a.run, a.topic, a.epoch, a.message, a.peer FROM {honest} AS a
JOIN (
    SELECT run, topic, epoch, message, min(t_us) AS t_us FROM {honest} WHERE kind = 'in:Advert'
    GROUP BY run, topic, epoch, message
) AS f ON a.run = f.run AND a.topic = f.topic AND a.epoch = f.epoch AND a.message = f.message AND a.t_us = f.t_us
WHERE a.kind = 'in:Advert'"""
_FIRST_CHAINS: Final = """
SELECT a.run, a.topic, a.epoch, a.observer, a.peer, min(a.chain) AS chain FROM {honest} AS a
JOIN (
    SELECT run, topic, epoch, observer, peer, min(t_us) AS t_us FROM {honest}
    WHERE kind = 'in:Advert' AND octet_length(chain) > 0 GROUP BY run, topic, epoch, observer, peer
) AS f ON a.run = f.run AND a.topic = f.topic AND a.epoch = f.epoch AND a.observer = f.observer AND a.peer = f.peer
    AND a.t_us = f.t_us
WHERE a.kind = 'in:Advert' AND octet_length(a.chain) > 0
GROUP BY a.run, a.topic, a.epoch, a.observer, a.peer"""
_HANDED_NAMES: Final = """
SELECT run, topic, epoch, observer, peer, about FROM {insiders}
WHERE kind IN ('in:SwapAsk', 'in:SwapAnswer', 'in:SwapCommit') AND about <> ''"""
_STEMS_IN: Final = f"""
SELECT run, topic, epoch, t_us, observer, peer,
    cast(CASE WHEN about = '{CLIMBS}' THEN 1 ELSE 0 END AS bigint) AS climbs
FROM {{insiders}} WHERE kind = 'in:Stem'"""  # noqa: S608
_NOTES_IN: Final = """
SELECT run, topic, epoch, count(DISTINCT message) AS notes FROM {insiders} WHERE kind = 'in:Notify'
GROUP BY run, topic, epoch"""
