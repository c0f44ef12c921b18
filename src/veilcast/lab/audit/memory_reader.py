"""Captures that fit into memory, observed for an audit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from veilcast.lab import capture
from veilcast.lab.attack.observer import cadence, captured_cells
from veilcast.lab.attack.observer.captured_cells import CapturedCells, Nodes
from veilcast.lab.attack.observer.publication_waves import estimate_heartbeat_us
from veilcast.lab.audit import networks
from veilcast.lab.audit.observed import (
    BIN,
    HEARTBEAT_US,
    PARTS,
    AttackerGuesses,
    ObservedCapture,
    ObservedNetwork,
    require_one,
)
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.capture import ReadingReport


def observe(
    captures: Sequence[Path],
    epoch_us: int,
    links: Sequence[OverlayLink] = (),
    listed: Collection[str] = (),
    *,
    only_listed: bool = False,
) -> ObservedCapture:
    """Observe each network of the captures; `networks.split_networks` defines a network."""
    table, reading = capture.read(captures, run="", epoch_us=epoch_us, trusted=networks.listed_nodes(links, listed))
    require_one(len(table["run"].unique()))
    carried = _count_cells(table)
    found, left_out = networks.split_networks(carried, links, listed, only_listed=only_listed)
    seen = frozenset(end for name in ("src", "dst") for end in carried[name].unique().to_pylist())
    return ObservedCapture([_observe(table, each, reading, links) for each in found], left_out, seen)


def _observe(
    table: pa.Table, network: frozenset[str], reading: ReadingReport, links: Sequence[OverlayLink]
) -> ObservedNetwork:
    table = networks.rows_within(table, network)
    links = [link for link in links if link.u in network and link.v in network]
    cells = CapturedCells.from_table(table, [end for link in links for end in (link.u, link.v)])
    overlay = _overlay(cells, links) if links else None
    beat = estimate_heartbeat_us(cells.t_us, cells.src, cells.dst, cells.size) or HEARTBEAT_US
    # Parts are too short to find the size of notifications.
    notes = cells.notification_size(beat)
    record = cells.observations(beat, notes, overlay)
    whole = captured_cells.score_all(record)
    first, last = int(cells.t_us.min()), int(cells.t_us.max())
    edges = first + np.arange(PARTS + 1) * ((last - first) // PARTS + 1)
    parts = [
        captured_cells.score_all(cells.between(since, until).observations(beat, notes, overlay))
        for since, until in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    return ObservedNetwork(
        reading=reading,
        heartbeat_us=beat,
        carried=_count_cells(table),
        gaps=_gaps(cells),
        notes=pa.table(
            [record.at, _name_nodes(cells, record.src), _name_nodes(cells, record.dst)], ["t_us", "src", "dst"]
        ),
        nodes=cells.names,
        guesses=[AttackerGuesses(*key, found, np.array([part[key] for part in parts])) for key, found in whole.items()],
    )


def _overlay(cells: CapturedCells, links: Sequence[OverlayLink]) -> tuple[Nodes, Nodes]:
    place = {name: number for number, name in enumerate(cells.names)}
    u, v = np.array([(place[link.u], place[link.v]) for link in links], np.int32).T
    return u, v


def _count_cells(table: pa.Table) -> pa.Table:
    found = table.group_by(["src", "dst", "size"]).aggregate([("t_us", "count"), ("t_us", "min"), ("t_us", "max")])
    return found.rename_columns(["src", "dst", "size", "cells", "first", "last"])


def _gaps(cells: CapturedCells) -> pa.Table:
    seen = cadence.count_gaps(cells.t_us, cells.src, cells.dst, cells.size)
    bins = np.floor(BIN * np.log2(1 + seen.gap)).astype(np.int64)
    found = pa.table(
        [_name_nodes(cells, seen.src), _name_nodes(cells, seen.dst), bins, seen.cells], ["src", "dst", "bin", "cells"]
    )
    return found.group_by(["src", "dst", "bin"]).aggregate([("cells", "sum")]).rename_columns(found.column_names)


def _name_nodes(cells: CapturedCells, nodes: Nodes) -> pa.Array:
    return pa.array(cells.names, pa.string()).take(pa.array(nodes))
