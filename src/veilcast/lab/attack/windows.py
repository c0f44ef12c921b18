"""What the wires of a relay's clients tell, alone or to its server: `cells` and `server` in, `guesses` out.

Spark counts who sent records to the proxy, and who got some from it, in windows of time (a batch, where the proxy
batches), and puts the server's requests beside them; all of a run goes to one task, where the arrays of `batches` say
who is read by whom ("disclosure"), and who sent which request: one of those who sent then ("timing"), or the one who
usually sends such ("matching"). A publication with several tags is several rows, of which the first counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import batches
from veilcast.lab.attack.folder import Folder, Sheet, filed
from veilcast.lab.attack.guessing import told
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Floats = NDArray[np.float64]


def guesses(
    cells: DataFrame, server: DataFrame, *, proxy: str, window_us: int, attacks: Collection[str] = ("disclosure",)
) -> DataFrame:
    """Of every user and request (the topic of a guess), or user and sender, what each attack holds of it.

    `proxy` is what it is called in `cells`. Of the server's rows only publications are looked at, and of cells those of
    windows in which one went on.
    """
    from pyspark.sql import functions as sql

    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"wires of a relay know no attack {attack!r}; there are {', '.join(ATTACKS)}")
    window = f"(t_us - 1) div {window_us}"
    published = (
        server.where("role = 'server:publish'").groupBy("run", "pseudonym", "t_us").agg(sql.min("tag").alias("tag"))
    )
    asked = published.selectExpr("run", f"{window} as at", "pseudonym", "tag")
    busy = asked.select("run", "at").distinct()
    sheets = [Sheet(_ASKED, asked, {"at": "at", "word": "pseudonym", "value": "tag"})]
    for kind, end, node in ((_SENT, "dst", "src"), (_GOT, "src", "dst")):
        on_wire = cells.where(cells[end] == proxy).selectExpr("run", f"{window} as at", f"{node} as node")
        records = on_wire.join(busy, ["run", "at"]).groupBy("run", "at", "node").count()
        sheets.append(Sheet(kind, records, {"at": "at", "u": "node", "share": "double(count)"}))

    def of_run(rows: pa.Table) -> pa.Table:
        parts = [*_guessed(Folder(rows), attacks)]
        return pa.concat_tables(parts) if parts else tables.arrow_schema(Guess).empty_table()

    return filed(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _guessed(folder: Folder, attacks: Collection[str]) -> Iterator[pa.Table]:
    asked = folder.sheet(_ASKED).sort_by([("at", "ascending"), ("word", "ascending")])
    at = asked["at"].to_numpy()
    windows = np.unique(at)
    sent, got = (_matrix(folder, kind, windows) for kind in (_SENT, _GOT))
    if "disclosure" in attacks:
        said = batches.profiles(sent, got)
        for number in np.flatnonzero(sent.any(axis=0)):
            yield told(folder.run, "disclosure", 1, 0, folder.names[number], "subscriber", folder.names, said[number])
    place = np.searchsorted(windows, at)
    if "timing" in attacks:
        yield from _of_requests(folder, "timing", asked, batches.any_of(sent, place))
    if "matching" in attacks:
        tags = pc.unique(asked["value"].combine_chunks())
        tag = np.asarray(pc.index_in(asked["value"], tags).to_numpy(), np.int64)
        usual = batches.profiles(sent, batches.counted(place, tag, (windows.size, len(tags))))
        yield from _of_requests(folder, "matching", asked, batches.matched_in(sent, place, tag, usual))


def _matrix(folder: Folder, kind: str, windows: NDArray[np.int64]) -> Floats:
    """Windows x users: how many records."""
    sheet = folder.sheet(kind)
    found = np.zeros((windows.size, len(folder.names)))
    found[np.searchsorted(windows, sheet["at"].to_numpy()), folder.nodes(sheet["u"])] = sheet["share"].to_numpy()
    return found


def _of_requests(folder: Folder, attack: str, asked: pa.Table, scores: Floats) -> Iterator[pa.Table]:
    """Who is not suspected at all is left out."""
    for request, said in zip(asked["word"].to_pylist(), scores, strict=True):
        suspects = np.flatnonzero(said)
        names = [folder.names[number] for number in suspects]
        yield told(folder.run, attack, 1, 1, request, "publisher", names, said[suspects])


ATTACKS: Final = ("disclosure", "timing", "matching")
_ASKED: Final = "asked"
_SENT: Final = "sent"
_GOT: Final = "got"
