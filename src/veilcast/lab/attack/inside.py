"""What a coalition of members makes of what it overheard: the table `insiders` in, the table `guesses` out.

Spark brings the rows down to what attackers work on (`overheard`), each kind only if somebody asks for it, and all of a
run to one task (`folder`); there the attackers score every honest node (`conspirators`), after each of the numbers of
epochs that are asked for. Topics are told apart where the coalition knows their tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import overheard
from veilcast.lab.attack.coalition import Adverts, Chains, Coalition, origins
from veilcast.lab.attack.conspirators import (
    ADVERTS,
    ATTACKS,
    CHAINS,
    CONSPIRATORS,
    NOTES,
    ORIGINS,
    SIGHTS,
    STEMS,
    TRAINED,
    UNTRAINED,
    Conspirator,
    Known,
)
from veilcast.lab.attack.folder import Folder, Sheet, distinct, filed
from veilcast.lab.attack.guessing import told
from veilcast.lab.kernels.graph import Graph, from_edges
from veilcast.lab.kernels.sights import ASKED, AWAY, SILENT, Sights
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
    insiders: DataFrame,
    topology: DataFrame,
    presence: DataFrame,
    *,
    attacks: Collection[str] = UNTRAINED,
    epochs: Sequence[int] = (1, 5, 20, 50),
    known: Known | None = None,
    topics: DataFrame | None = None,
    roots: DataFrame | None = None,
    hop_us: int | None = None,
) -> DataFrame:
    """Of every honest node, what each attack holds of it after so many epochs; numbers above all that there are, once.

    `topics` (run, epoch, token, topic) says which tokens the coalition knows, and what it knows none of is left out;
    without, all is taken for one topic. `roots` (run, topic, epoch, node) says where floods begin, if that is public.
    With `hop_us`, the time that a message takes, answers to adverts can be timed.
    """
    granted = known or Known()
    chosen = _chosen(attacks, granted, epochs)
    named = _named(insiders, topics)
    sheets = [
        Sheet(_LINK, topology, {"u": "u", "v": "v"}),
        Sheet(_THERE, presence, {"at": "epoch", "u": "node"}),
        Sheet(_OURS, overheard.observers(named), {"u": "node"}),
        *_overheard(named, set().union(*(each.needs for each in chosen)), roots),
    ]

    def of_run(rows: pa.Table) -> pa.Table:
        return _guessed(Folder(rows), chosen, granted, epochs, hop_us)

    return filed(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _chosen(attacks: Collection[str], known: Known, epochs: Sequence[int]) -> list[Conspirator]:
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"no attack from inside is called {attack!r}; there are {', '.join(ATTACKS)}")
        if attack in TRAINED and not all((attack, number) in known.trained for number in epochs):
            raise ConfigError(f"{attack} is a trained attack, and was not trained for every number of epochs")
    return [each for each in CONSPIRATORS if each.attack in attacks]


def _named(insiders: DataFrame, topics: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as sql

    if topics is None:
        return insiders.withColumn("topic", sql.lit(""))
    return insiders.join(sql.broadcast(topics), ["run", "epoch", "token"])


def _overheard(named: DataFrame, needs: set[str], roots: DataFrame | None) -> Iterator[Sheet]:
    honest = overheard.about_honest(named)
    if ORIGINS in needs and roots is None:
        needs = needs | {ADVERTS, CHAINS}
    on_link = {"at": "epoch", "word": "topic", "u": "observer", "v": "peer"}
    of_node = {"at": "epoch", "word": "topic", "u": "node"}
    if SIGHTS in needs:
        yield Sheet(SIGHTS, overheard.sights(honest), on_link | {"number": "sight", "share": "double(t_us)"})
        yield Sheet(_NAMES, overheard.names(named), on_link | {"w": "about"})
        yield Sheet(_BEGAN, overheard.began(named), {"at": "epoch", "word": "topic", "number": "t_us"})
    if ADVERTS in needs:
        yield Sheet(ADVERTS, overheard.first_heard(honest), of_node | {"u": "peer", "value": "message"})
    if CHAINS in needs:
        yield Sheet(CHAINS, overheard.chains(honest), of_node | {"value": "chain"})
    if STEMS in needs:
        yield Sheet(STEMS, overheard.stems(named), on_link | {"number": "t_us", "share": "double(climbs)"})
    if NOTES in needs:
        yield Sheet(NOTES, overheard.read(named), {"at": "epoch", "word": "topic", "number": "notes"})
    if ORIGINS in needs and roots is not None:
        yield Sheet(ORIGINS, roots, of_node)


def _guessed(
    folder: Folder, chosen: list[Conspirator], known: Known, epochs: Sequence[int], hop_us: int | None
) -> pa.Table:
    parts = []
    topics = distinct([folder.sheet(kind)["word"] for kind in _OF_TOPICS]).to_pylist() or [""]
    for topic in topics:
        whole = _coalition(folder, topic, hop_us)
        honest = np.flatnonzero(~whole.enemy)
        names = [folder.names[node] for node in honest]
        size = len(folder.names) - len(names)
        for number in sorted({min(number, whole.epochs) for number in epochs}):
            so_far = whole.until(number)
            for each in chosen:
                scores = each.scores(so_far, known)[honest]
                parts.append(told(folder.run, each.attack, number, size, topic, each.role, names, scores))
    return pa.concat_tables(parts)


def _coalition(folder: Folder, topic: str, hop_us: int | None) -> Coalition:
    links, there, ours = folder.sheet(_LINK), folder.sheet(_THERE), folder.sheet(_OURS)
    adverts, chains, stems, notes = (folder.sheet(kind, topic) for kind in (ADVERTS, CHAINS, STEMS, NOTES))
    nodes, epochs = len(folder.names), _epochs(folder)
    graph = from_edges(nodes, folder.nodes(links["u"]), folder.nodes(links["v"]))
    enemy, present = np.zeros(nodes, np.bool_), np.zeros((len(epochs), nodes), np.bool_)
    enemy[folder.nodes(ours["u"])] = True

    def rows(sheet: pa.Table) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(epochs, sheet["at"].to_numpy()), np.int64)

    present[rows(there), folder.nodes(there["u"])] = True
    heard = Adverts(rows(adverts), _numbered(adverts["value"]), folder.nodes(adverts["u"]))
    held = Chains(rows(chains), folder.nodes(chains["u"]), chains["value"].to_pylist())
    told_of = folder.sheet(ORIGINS, topic)
    told_of = told_of.filter(np.isin(told_of["at"].to_numpy(), epochs))
    if len(told_of):
        origin = np.zeros(len(epochs), np.int32)
        origin[rows(told_of)] = folder.nodes(told_of["u"])
    else:
        origin = origins(graph, len(epochs), heard, held)
    stems = stems.sort_by([("at", "ascending"), ("number", "ascending")])
    observer, peer = folder.nodes(stems["u"]), folder.nodes(stems["v"])
    passed = np.column_stack([rows(stems), observer, peer, observer, stems["share"].to_numpy()]).astype(np.int32)
    read = np.zeros(len(epochs), np.int64)
    read[rows(notes)] = notes["number"].to_numpy()
    seen = _seen(folder, topic, graph, enemy, present, origin, epochs, hop_us)
    return Coalition(graph, enemy, seen, passed, heard, held, read)


def _epochs(folder: Folder) -> NDArray[np.int64]:
    """All in which somebody was there, or anything was overheard: meshes form before their epoch comes."""
    kinds = (_THERE, _BEGAN, *_OF_TOPICS)
    return np.asarray(np.unique(np.concatenate([folder.sheet(kind)["at"].to_numpy() for kind in kinds])), np.int64)


def _seen(
    folder: Folder,
    topic: str,
    graph: Graph,
    enemy: NDArray[np.bool_],
    present: NDArray[np.bool_],
    origin: NDArray[np.int32],
    epochs: NDArray[np.int64],
    hop_us: int | None,
) -> Sights:
    """What happened on each link between a member and an honest neighbour; on most, nothing."""
    ends = np.repeat(np.arange(graph.nodes, dtype=np.int32), graph.degrees)
    outward = enemy[ends] & ~enemy[graph.targets]
    observer, peer = ends[outward], graph.targets[outward]
    seen = np.where(present[:, peer], SILENT, AWAY).astype(np.int8)
    delay = np.full(seen.shape, -1, np.int16)

    sights, names, began = folder.sheet(SIGHTS, topic), folder.sheet(_NAMES, topic), folder.sheet(_BEGAN, topic)
    pairs, wanted = _pairs(observer, peer), _pairs(folder.nodes(sights["u"]), folder.nodes(sights["v"]))
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

    named = [folder.nodes(names[column]) for column in ("u", "v", "w")]
    nothing = np.zeros(len(names), np.int32)
    at = np.searchsorted(epochs, names["at"].to_numpy())
    handed = np.column_stack([at, nothing, named[0], named[1], nothing, named[2]]).astype(np.int32)
    return Sights(observer, peer, origin, present, seen, delay, handed)


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
_OF_TOPICS: Final = (ADVERTS, CHAINS, NOTES, SIGHTS, STEMS, _NAMES)
