"""What a global observer makes of its cells: the table `cells` in, the table `guesses` out, of any number of runs.

Spark brings cells down to what attackers work on (`gathering`), each kind only if somebody asks for it, and all of a
run to one task (`folder`); there the attackers score every node (`outsiders`). A run must fit into a task as its notes
and counts do, not as its cells.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import cadence, gathering
from veilcast.lab.attack.cadence import Tally
from veilcast.lab.attack.folder import Folder, Sheet, distinct, filed
from veilcast.lab.attack.guessing import told
from veilcast.lab.attack.outsiders import ACTIVITY, ATTACKS, CADENCE, NOTES, OUTSIDERS, VOLUMES, Outsider
from veilcast.lab.attack.record import Record, Rounds, Volumes
from veilcast.lab.kernels.graph import from_edges
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
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
    links = gathering.links(cells) if topology is None else topology
    there = gathering.there(links) if presence is None else presence
    sheets = [Sheet(_LINK, links, {"u": "u", "v": "v"}), Sheet(_THERE, there, {"at": "epoch", "u": "node"})]
    if needs & {NOTES, ACTIVITY}:
        notes = gathering.notes(cells, heartbeat_us) if notes is None else notes
        sheets.append(Sheet(NOTES, notes, {"at": "t_us", "u": "src", "v": "dst", "number": "epoch"}))
    if ACTIVITY in needs:
        activity = gathering.activity(cells, heartbeat_us)
        sheets.append(Sheet(ACTIVITY, activity, {"at": "round", "u": "node", "share": "double(bytes)"}))
    if CADENCE in needs:
        columns = {"at": "gap", "u": "src", "v": "dst", "number": "size", "share": "double(cells)"}
        sheets.append(Sheet(CADENCE, cadence.tallied(cells), columns))
    if VOLUMES in needs:
        columns = {"at": "bin", "u": "node", "number": "bigint(arriving)", "share": "double(bytes)"}
        sheets.append(Sheet(VOLUMES, gathering.volumes(cells, heartbeat_us), columns))
    if published is not None:
        sheets.append(Sheet(_PUBLISHED, published, {"at": "t_us", "word": "topic"}))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guessed(Folder(rows), chosen, heartbeat_us, rate)

    return filed(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _chosen(attacks: Collection[str]) -> list[Outsider]:
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"no attack from outside is called {attack!r}; there are {', '.join(ATTACKS)}")
    return [each for each in OUTSIDERS if each.attack in attacks]


def _guessed(folder: Folder, chosen: list[Outsider], heartbeat_us: int, rate: float) -> pa.Table:
    record, topics = _record(folder, heartbeat_us)
    parts = []
    for each in chosen:
        found = each.scores(record, rate)
        # Who cannot tell topics apart says one thing of all of them.
        for topic, scores in zip(topics if len(found) == len(topics) else [""], found, strict=True):
            epochs = len(record.present)
            parts.append(told(folder.run, each.attack, epochs, 0, topic, each.role, folder.names, scores))
    return pa.concat_tables(parts)


def _record(folder: Folder, heartbeat_us: int) -> tuple[Record, list[str]]:
    """And the topics that are known; one without a name, if none are."""
    links, there, notes, activity, tally, published = map(
        folder.sheet, (_LINK, _THERE, NOTES, ACTIVITY, CADENCE, _PUBLISHED)
    )
    epochs = np.union1d(there["at"].to_numpy(), notes["number"].to_numpy())
    present = np.zeros((len(epochs), len(folder.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), folder.nodes(there["u"])] = True
    # Of copies at the same time the order is any, but always the same.
    notes = notes.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    topics = distinct([published["word"]])
    counts = (tally["at"].to_numpy(), tally["number"].to_numpy(), tally["share"].to_numpy().astype(np.int64))
    record = Record(
        graph=from_edges(len(folder.names), folder.nodes(links["u"]), folder.nodes(links["v"])),
        present=present,
        src=folder.nodes(notes["u"]),
        dst=folder.nodes(notes["v"]),
        at=notes["at"].to_numpy(),
        epoch=np.searchsorted(epochs, notes["number"].to_numpy()),
        rounds=_rounds(folder, activity, heartbeat_us),
        published=published["at"].to_numpy(),
        topic=np.asarray(pc.index_in(published["word"], topics).to_numpy(), np.int64),
        cadence=Tally(folder.nodes(tally["u"]), folder.nodes(tally["v"]), *counts),
        volumes=_volumes(folder),
    )
    return record, topics.to_pylist() or [""]


def _rounds(folder: Folder, activity: pa.Table, length_us: int) -> Rounds:
    number = activity["at"].to_numpy()
    first = int(number.min()) if len(number) else 0
    did = np.zeros((int(number.max(initial=first - 1)) + 1 - first, len(folder.names)))
    did[number - first, folder.nodes(activity["u"])] = activity["share"].to_numpy()
    return Rounds(length_us, first, did)


def _volumes(folder: Folder) -> Volumes | None:
    counted = folder.sheet(VOLUMES)
    number, arriving, size = (counted[name].to_numpy() for name in ("at", "number", "share"))
    return Volumes.counted(number, folder.nodes(counted["u"]), arriving, size, len(folder.names))


_LINK: Final = "links"
_THERE: Final = "there"
_PUBLISHED: Final = "published"
