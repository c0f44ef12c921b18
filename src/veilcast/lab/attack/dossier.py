"""A dossier: all that a coalition overheard in a run, brought to one task, and put together there topic by topic.

Spark brings rows down to what attackers work on (`overheard`), each kind only if somebody asks for it, and all of a run
to one task (`folder`). There it becomes a `Coalition` for each topic: arrays over nodes, links and epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack import overheard
from veilcast.lab.attack.coalition import Adverts, Chains, Coalition, origins
from veilcast.lab.attack.folder import Folder, Sheet, distinct
from veilcast.lab.kernels.graph import Graph, from_edges
from veilcast.lab.kernels.sights import ASKED, AWAY, SILENT, Sights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADVERTS: Final = "adverts"
CHAINS: Final = "chains"
NOTES: Final = "notes"
ORIGINS: Final = "origins"
SIGHTS: Final = "sights"
STEMS: Final = "stems"


def sheets(
    insiders: DataFrame, topology: DataFrame, presence: DataFrame, needs: Set[str], roots: DataFrame | None
) -> Iterator[Sheet]:
    """What is needed of these rows, which have a column `topic`; `roots` (run, topic, epoch, node) says where floods
    begin, if that is public."""
    yield Sheet(_LINK, topology, {"u": "u", "v": "v"})
    yield Sheet(_THERE, presence, {"at": "epoch", "u": "node"})
    yield Sheet(_OURS, overheard.observers(insiders), {"u": "node"})
    honest = overheard.about_honest(insiders)
    if ORIGINS in needs and roots is None:
        needs = needs | {ADVERTS, CHAINS}
    on_link = {"at": "epoch", "word": "topic", "u": "observer", "v": "peer"}
    of_node = {"at": "epoch", "word": "topic", "u": "node"}
    if SIGHTS in needs:
        yield Sheet(SIGHTS, overheard.sights(honest), on_link | {"number": "sight", "share": "double(t_us)"})
        yield Sheet(_NAMES, overheard.names(insiders), on_link | {"w": "about"})
        yield Sheet(_BEGAN, overheard.began(insiders), {"at": "epoch", "word": "topic", "number": "t_us"})
    if ADVERTS in needs:
        yield Sheet(ADVERTS, overheard.first_heard(honest), of_node | {"u": "peer", "value": "message"})
    if CHAINS in needs:
        yield Sheet(CHAINS, overheard.chains(honest), of_node | {"value": "chain"})
    if STEMS in needs:
        yield Sheet(STEMS, overheard.stems(insiders), on_link | {"number": "t_us", "share": "double(climbs)"})
    if NOTES in needs:
        yield Sheet(NOTES, overheard.read(insiders), {"at": "epoch", "word": "topic", "number": "notes"})
    if ORIGINS in needs:
        yield Sheet(ORIGINS, overheard.own(insiders) if roots is None else roots, of_node)


def topics(folder: Folder) -> list[str]:
    """Of which anything was overheard; one without a name, if there are none."""
    return distinct([folder.sheet(kind)["word"] for kind in _OF_TOPICS]).to_pylist() or [""]


def heard_of(folder: Folder, topics: list[str]) -> NDArray[np.bool_]:
    """Epochs x topics, all that there are: whether anything was overheard."""
    epochs, began = _epochs(folder), folder.sheet(_BEGAN)
    mask = np.zeros((len(epochs), len(topics)), np.bool_)
    places = pc.index_in(began["word"], pa.array(topics, pa.string())).to_numpy()
    mask[np.searchsorted(epochs, began["at"].to_numpy()), places] = True
    return mask


def coalition(folder: Folder, topic: str, hop_us: int | None) -> Coalition:
    """With `hop_us`, the time that a message takes, answers to adverts can be timed."""
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
    everywhere = len(np.unique(rows(told_of))) == len(epochs)
    origin = np.zeros(len(epochs), np.int32) if everywhere else origins(graph, len(epochs), heard, held)
    origin[rows(told_of)] = folder.nodes(told_of["u"])
    stems = stems.sort_by([("at", "ascending"), ("number", "ascending")])
    observer, peer = folder.nodes(stems["u"]), folder.nodes(stems["v"])
    passed = np.column_stack([rows(stems), observer, peer, observer, stems["share"].to_numpy()]).astype(np.int32)
    read = np.zeros(len(epochs), np.int64)
    read[rows(notes)] = notes["number"].to_numpy()
    seen = _seen(folder, topic, graph, enemy, present, origin, epochs, hop_us)
    return Coalition(graph, enemy, seen, passed, heard, held, read)


def _epochs(folder: Folder) -> NDArray[np.int64]:
    """All in which somebody was there, or anything was overheard: meshes form before their epoch comes."""
    kinds = (_THERE, *_OF_TOPICS)
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
_OF_TOPICS: Final = (ADVERTS, CHAINS, NOTES, SIGHTS, STEMS, _NAMES, _BEGAN)
