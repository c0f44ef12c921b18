"""Tables of any size, tiled from a small network that was really simulated.

A tile is what was seen in one epoch: all cells of P0's mesh of real machines, with heartbeats and notifications; or the
adverts that a coalition receives, at the pace of heartbeats. The next tile is the same an epoch later, or in another
run. So every run has the same answer, and any size costs no more than writing it. A file holds whole runs, as the files
of a sweep do, and files of one name hold the same runs in every table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilcast.lab import tables
from veilcast.lab.models import advert_delays
from veilcast.lab.models.coalition_view import insider_links
from veilcast.lab.models.epochs import Population, settle_population
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.storage.location import LocalDirectory
from veilcast.observe import CellRow, InsiderRow, ObservationRow, PresenceRow, TopologyRow
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World


class TiledTables(msgspec.Struct, frozen=True):
    """Directories of Parquet files."""

    cells: str
    insiders: str
    topology: str
    presence: str
    rows: int
    """Minimum rows of cells, and of insiders."""


def write_tables(folder: Path, rows: int) -> TiledTables:
    """Write this number of cells, and as many rows of insiders."""
    places = {row: folder / tables.TABLE_OF[row] for row in (CellRow, InsiderRow, TopologyRow, PresenceRow)}
    together = runs_of_file(rows)
    for base, row in ((simulate_cells(), CellRow), (_insiders(), InsiderRow)):
        write_tiles(places[row], row, tile_table(base, ceil(rows / len(base)), EPOCH_US), together)
    people, tiles = _people(), ceil(rows / len(_insiders()))
    u, v = people.graph.edges()
    ends = [(_NAME % a, _NAME % b) for a, b in zip(u.tolist(), v.tolist(), strict=True)]
    overlay = tables.from_rows(TopologyRow, [TopologyRow("", 0, *sorted(pair)) for pair in ends])
    there = tables.from_rows(PresenceRow, [PresenceRow("", 0, _NAME % node) for node in range(people.graph.nodes)])
    runs = ceil(tiles / _per_run(tiles))
    overlays = ((number, _in_run(overlay, number)) for number in range(runs))
    write_tiles(places[TopologyRow], TopologyRow, overlays, together)
    write_tiles(places[PresenceRow], PresenceRow, tile_table(there, tiles, EPOCH_US), together)
    return TiledTables(
        **{tables.TABLE_OF[row]: str(place) for row, place in places.items()},
        rows=min(ceil(rows / len(base)) * len(base) for base in (simulate_cells(), _insiders())),
    )


def runs_of_file(rows: int) -> int:
    """Number of runs in a file, if a table has so many rows: some million rows, and files for several tasks."""
    return max(1, min(_RUNS // _FILES_MIN, _FILE_ROWS * _RUNS // rows))


def tile_table(base: pa.Table, count: int, epoch_us: int) -> Iterator[tuple[int, pa.Table]]:
    """Several runs of several epochs each, with the number of the run."""
    epochs = _per_run(count)
    for number in range(count):
        yield number // epochs, _in_run(_later(base, number % epochs, epoch_us), number // epochs)


def _per_run(tiles: int) -> int:
    return ceil(tiles / _RUNS)


def _later(base: pa.Table, epochs: int, epoch_us: int) -> pa.Table:
    shifts = {"epoch": epochs, "t_us": epochs * epoch_us}
    for name, shift in shifts.items():
        if name in base.column_names:
            column = pa.array(base[name].to_numpy() + shift)
            base = base.set_column(base.column_names.index(name), base.field(name), column)
    return base


def _in_run(base: pa.Table, number: int) -> pa.Table:
    return base.set_column(0, base.field(0), pa.repeat(pa.scalar(f"run-{number:03}"), len(base)))


def write_tiles(
    place: Path, row: type[ObservationRow], parts: Iterator[tuple[int, pa.Table]], runs_of_file: int
) -> None:
    """Write the tables of runs, with their numbers, that many runs to a file."""
    place.mkdir(parents=True)
    for number, of_file in groupby(parts, lambda part: part[0] // runs_of_file):
        rows = pa.concat_tables(table for _, table in of_file)
        pq.write_table(rows, place / f"{number:05}.parquet", compression="zstd", row_group_size=1 << 20)
    tables.check(LocalDirectory(place), "00000.parquet", row)


@cache
def simulate_cells() -> pa.Table:
    """All cells of one epoch of P0's mesh of real machines."""
    seen: list[ObservationRow] = []

    class Wires:
        def append(self, row: ObservationRow) -> None:
            if isinstance(row, CellRow):
                seen.append(msgspec.structs.replace(row, epoch=0, t_us=row.t_us - world.start))

    world = World(seed=1, links=LinkDelays(latency_us=(1_000, 20_000)), recorder=Wires())
    people = MeshPopulation(_MACHINES, _DEGREE, notes=40, every_us=1_300_000, checks=())
    people.populate(world, EPOCH_US)
    world.run(EPOCH_US)
    return tables.from_rows(CellRow, seen)


@cache
def _people() -> Population:
    graph = small_world(_NODES, _DEGREE, 0.2, 1)
    return settle_population(graph, *draw_roles(graph, 0.1, 1), _SHARE, 0.0, 1)


@cache
def _insiders() -> pa.Table:
    people = _people()
    observer, peer = insider_links(people)
    rows: list[InsiderRow] = []
    for number in range(_ADVERTS):
        takes = advert_delays.random_delays(people.graph, derive_key(1, "bench", number))
        periods = advert_delays.arrival_times(people.graph, people.publisher, observer, peer, takes)
        heard_us = number * HEARTBEAT_US // 2 + np.round(periods * HEARTBEAT_US).astype(np.int64)
        message = number.to_bytes(16, "big")
        rows += [
            InsiderRow("", 0, t_us, _NAME % x, _NAME % w, "in:Advert", message, b"topic", b"", "")
            for t_us, x, w in zip(heard_us.tolist(), observer.tolist(), peer.tolist(), strict=True)
        ]
    return tables.from_rows(InsiderRow, rows)


HEARTBEAT_US: Final = 1_000_000
EPOCH_US: Final = 80_000_000
_RUNS: Final = 200
_FILE_ROWS: Final = 1 << 20
_FILES_MIN: Final = 8
_NAME: Final = "n%d"
_MACHINES: Final = 60
_NODES: Final = 500
_DEGREE: Final = 8
_SHARE: Final = 0.1
_ADVERTS: Final = 100
