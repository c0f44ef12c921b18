"""Clock skew on tables: the cells of links in, clocks and recognised machines out.

1. A group is the cells of one link in one epoch. Each estimator of the registry (`clock_skew`) gives the error of the
   sender's clock: a row for each link, however many cells it has. So a run whose cells fill memory can be estimated
   link by link (`estimate_clocks`).
2. All links of a run go to one task. The error of a node is the mean over its links. After each number of epochs the
   nodes of the last epoch are compared with those of the epoch before (`compare_clocks`).

Guesses have two roles. `clock` is the error of a node's clock in the epoch before, in ppm; a fast clock is above 0.
`machine` says how alike two clocks are, 0 at the most: the topic is a node of the epoch before, and the node one of the
last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import make_guesses
from veilcast.lab.attack.observer.clock_skew import CELLS_MIN, LinkCells
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.tables import GuessRow
from veilcast.observe import ObservationRow


class LinkClockRow(ObservationRow, frozen=True, gc=False):
    """How much slower than its class a link sent in an epoch, in ppm."""

    epoch: int
    src: str
    dst: str
    attack: str
    ppm: float


def guess_from_clocks(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """Both steps; after two epochs, if no number of epochs is given."""
    return compare_clocks(estimate_clocks(observed["cells"], names), epochs)


def estimate_clocks(cells: AnyTable, names: Collection[str] | None = None) -> AnyTable:
    """Rows of `LinkClockRow`; links with fewer than `CELLS_MIN` cells are left out."""
    chosen = attackers_on(LinkCells, names, called="attack on clocks")

    def of_link(rows: pa.Table) -> pa.Table:
        found = [each for each in chosen if len(rows) >= CELLS_MIN]
        times = LinkCells(np.sort(rows["t_us"].to_numpy()))
        same = {name: rows[name][0].as_py() for name in _LINK}
        return pa.table(
            [
                *(pa.repeat(pa.scalar(value, _SCHEMA.field(name).type), len(found)) for name, value in same.items()),
                pa.array([each.name for each in found], pa.string()),
                pa.array([float(each.score(times)[0]) for each in found], pa.float64()),
            ],
            schema=_SCHEMA,
        )

    return engine_of(cells).apply_by(cells, _LINK, of_link, LinkClockRow)


def compare_clocks(links: AnyTable, epochs: Sequence[int] = ()) -> AnyTable:
    """Rows of `guesses`, from the links of all epochs."""

    def of_run(rows: pa.Table) -> pa.Table:
        return _compare_run(rows, epochs or (2,))

    return engine_of(links).apply_by(links, ["run"], of_run, GuessRow)


def _compare_run(rows: pa.Table, epochs: Sequence[int]) -> pa.Table:
    known = np.unique(rows["epoch"].to_numpy())
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    run = rows["run"][0].as_py()
    for attack in pc.unique(rows["attack"]).sort().to_pylist():
        own = rows.filter(pc.equal(rows["attack"], attack))
        for number in (number for number in epochs if 2 <= number <= known.size):
            (before, seen), (after, again) = (_clocks(own, int(known[number - place])) for place in (2, 1))
            parts.append(make_guesses(run, attack, number, 0, "", "clock", before, seen))
            for name, clock in zip(before, seen.tolist(), strict=True):
                parts.append(make_guesses(run, attack, number, 0, name, "machine", after, -np.abs(again - clock)))
    return pa.concat_tables(parts)


def _clocks(rows: pa.Table, epoch: int) -> tuple[list[str], NDArray[np.float64]]:
    """The nodes of an epoch, and the mean error of each over its links."""
    here = rows.filter(pc.equal(rows["epoch"], epoch)).sort_by([("src", "ascending"), ("dst", "ascending")])
    found: dict[str, list[float]] = {}
    for node, ppm in zip(here["src"].to_pylist(), here["ppm"].to_pylist(), strict=True):
        found.setdefault(node, []).append(-ppm)
    return [*found], np.array([sum(links) / len(links) for links in found.values()])


_LINK: Final = ("run", "epoch", "src", "dst")
_SCHEMA: Final = tables.arrow_schema(LinkClockRow)
