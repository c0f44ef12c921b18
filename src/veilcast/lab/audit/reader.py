"""Captures of any size, observed for an audit.

The cells are an Arrow table in this process, or, with a session, a frame. All else is one path over either engine
(`table_engine`), and what comes to this process is as small as links and nodes are, however long the record is: copies
of publications are counted where they are. Each network is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import capture, tables
from veilcast.lab.attack.grouped_tables import distinct_values
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.publication_waves import assign_publications, estimate_heartbeat_us
from veilcast.lab.attack.observer.reduced_cells import HEARTBEAT_US, RecordParts, ReducedCells
from veilcast.lab.attack.registry import Attacker
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.audit import networks
from veilcast.lab.audit.observed import BIN, PARTS, AttackerGuesses, ObservedCapture, ObservedNetwork, require_one
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.capture.remote_files import RecordPath
from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.observe import FactRow, TopologyRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def observe(
    captures: Sequence[RecordPath],
    epoch_us: int,
    links: Sequence[OverlayLink] = (),
    listed: Collection[str] = (),
    *,
    only_listed: bool = False,
    own: Sequence[Attacker[CaptureObservations]] = (),
    spark: SparkSession | None = None,
) -> ObservedCapture:
    """Observe each network of the captures; `networks.split_networks` defines a network. `own` are attackers beside
    those of the package."""
    trusted = networks.listed_nodes(links, listed)
    if spark is None:
        cells, reading = capture.read(captures, run="", epoch_us=epoch_us, trusted=trusted)
        return _observe(cells, reading, links, listed, only_listed, own, None)
    frame, reading = capture.read(captures, run="", epoch_us=epoch_us, trusted=trusted, spark=spark)
    try:
        return _observe(frame, reading, links, listed, only_listed, own, spark)
    except SPARK_ERRORS as error:
        raise translate_error(error) from error


def _observe(
    cells: AnyTable,
    reading: capture.ReadingReport,
    links: Sequence[OverlayLink],
    listed: Collection[str],
    only_listed: bool,
    own: Sequence[Attacker[CaptureObservations]],
    spark: SparkSession | None,
) -> ObservedCapture:
    engine, convert = engine_of(cells), _converter(spark)
    if not isinstance(cells, pa.Table):
        cells = cells.persist()
    counted = _collect(engine.query(_CARRIED, cells=cells))
    require_one(len(counted["run"].unique()))
    carried = counted.drop_columns(["run"])
    found, left_out = networks.split_networks(carried, links, listed, only_listed=only_listed)
    seen = frozenset(end for name in ("src", "dst") for end in carried[name].unique().to_pylist())
    if len(found) == 1 and seen <= found[0]:
        runs, within = {counted["run"][0].as_py(): carried}, cells
    else:
        names = [f"network {number}" for number in range(len(found))]
        runs = {run: networks.rows_within(carried, network) for run, network in zip(names, found, strict=True)}
        within = engine.query(_WITHIN, cells=cells, members=convert(_list_members(names, found)))
    beats = _estimate_heartbeats(_collect(engine.query(_SAMPLED, cells=within, some=convert(_choose_links(runs)))))
    beats = {run: beats.get(run, HEARTBEAT_US) for run in runs}
    facts = [FactRow(run, "heartbeat_us", float(beat)) for run, beat in beats.items()]
    observed = {"cells": within, "facts": convert(tables.from_rows(FactRow, facts))}
    if links:
        told = [
            row
            for run, network in zip(runs, found, strict=True)
            for row in list_overlay(run, network, links, runs[run])
        ]
        observed["topology"] = convert(tables.from_rows(TopologyRow, told))
    chosen = [*capture_job.choose_attackers(None, published=False, trained=False), *own]
    parts = convert(tables.from_rows(RecordParts, [_cut(run, rows) for run, rows in runs.items()]))
    reduced = ReducedCells(observed, capture_job.needed_parts(chosen), parts)
    guesses = _collect(capture_job.guess_from_reduced(reduced, observed, chosen, {}))
    gaps = _collect(engine.query(_GAPS, gaps=reduced.gaps))
    flows = _collect(engine.query(_FLOWS, copies=reduced.copies))
    counted_waves = _collect(engine.apply_by(engine.query(_COPIES, copies=reduced.copies), ["run"], _count, WaveCount))
    waves = dict(zip(*(counted_waves[name].to_pylist() for name in ("run", "waves")), strict=True))
    observed_networks = [
        ObservedNetwork(
            reading,
            beats[run],
            carried,
            _rows_of(gaps, run),
            waves.get(run, 0),
            _rows_of(flows, run),
            *sort_guesses(guesses, run),
        )
        for run, carried in runs.items()
    ]
    return ObservedCapture(observed_networks, left_out, seen)


class WaveCount(msgspec.Struct, frozen=True):
    """Number of publications of a run, by the waves of their copies."""

    run: str
    waves: int


def _count(copies: pa.Table) -> pa.Table:
    """The waves of one run, as a row of `WaveCount`."""
    ordered = copies.sort_by([(name, "ascending") for name in ("t_us", "src", "dst")])
    names = distinct_values([ordered["src"], ordered["dst"]])
    src, dst = (np.asarray(pc.index_in(ordered[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
    found = assign_publications(ordered["t_us"].to_numpy(), src, dst)
    return tables.from_rows(WaveCount, [WaveCount(ordered["run"][0].as_py(), int(found.max()) + 1)])


def _converter(spark: SparkSession | None) -> Callable[[pa.Table], AnyTable]:
    """What makes a small table one of the same kind as the cells."""
    return (lambda table: table) if spark is None else partial(tables.make_frame, spark)


def _collect(table: AnyTable) -> pa.Table:
    """The rows in this process, in a fixed order."""
    found = table if isinstance(table, pa.Table) else table.toArrow()
    return found.sort_by([(name, "ascending") for name in found.column_names])


def _rows_of(table: pa.Table, run: str) -> pa.Table:
    return table.filter(pc.equal(table["run"], run)).drop_columns(["run"])


def _list_members(names: Sequence[str], found: Sequence[frozenset[str]]) -> pa.Table:
    pairs = [(name, node) for name, network in zip(names, found, strict=True) for node in sorted(network)]
    return pa.table({"network": [name for name, _ in pairs], "node": [node for _, node in pairs]})


def _choose_links(runs: Mapping[str, pa.Table]) -> pa.Table:
    """Some links of each network, and the time until which they are looked at."""
    found = []
    for run, carried in runs.items():
        links = carried.group_by(["src", "dst"]).aggregate([]).sort_by([("src", "ascending"), ("dst", "ascending")])
        until = pc.min(carried["first"]).as_py() + _SAMPLE_US
        some = links.slice(0, _SAMPLE_LINKS)
        found.append(
            some.append_column("run", pa.array([run] * len(some))).append_column(
                "until_us", pa.array([until] * len(some), pa.int64())
            )
        )
    return pa.concat_tables(found)


def _estimate_heartbeats(sample: pa.Table) -> dict[str, int]:
    """The heartbeats of the networks in which anything is periodic."""
    found = {}
    for run in sample["run"].unique().to_pylist():
        rows = _rows_of(sample, run)
        names = distinct_values([rows["src"], rows["dst"]])
        src, dst = (np.asarray(pc.index_in(rows[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        beat = estimate_heartbeat_us(rows["t_us"].to_numpy(), src, dst, rows["size"].to_numpy())
        if beat is not None:
            found[run] = beat
    return found


def list_overlay(
    run: str, network: frozenset[str], links: Sequence[OverlayLink], carried: pa.Table
) -> list[TopologyRow]:
    """The links that the operator has listed; of a network without any, those that carried cells."""
    listed = [TopologyRow(run, 0, link.u, link.v) for link in links if link.u in network and link.v in network]
    if listed:
        return listed
    return [
        TopologyRow(run, 0, u, v)
        for u, v in zip(carried["src"].to_pylist(), carried["dst"].to_pylist(), strict=True)
        if u != v
    ]


def _cut(run: str, carried: pa.Table) -> RecordParts:
    first, last = pc.min(carried["first"]).as_py(), pc.max(carried["last"]).as_py()
    return RecordParts(run, first, (last - first) // PARTS + 1)


def sort_guesses(guesses: pa.Table, run: str) -> tuple[list[str], list[AttackerGuesses]]:
    """The nodes in order, and each attacker's scores; 0 in a part without any cell."""
    names = pc.unique(_rows_of(guesses, run)["node"]).sort()
    shape = len(names)
    scores: dict[tuple[str, str], NDArray[np.float64]] = {}
    for row, name in enumerate([run, *(capture_job.part_name(run, part) for part in range(PARTS))]):
        rows = _rows_of(guesses, name)
        node, score = pc.index_in(rows["node"], names).to_numpy(), rows["score"].to_numpy()
        attack, role = (rows[column].to_numpy(zero_copy_only=False) for column in ("attack", "role"))
        for key in dict.fromkeys(zip(attack.tolist(), role.tolist(), strict=True)):
            own = (attack == key[0]) & (role == key[1])
            scores.setdefault(key, np.zeros((1 + PARTS, shape)))[row, node[own]] = score[own]
    return names.to_pylist(), [AttackerGuesses(*key, found[0], found[1:]) for key, found in scores.items()]


_SAMPLE_LINKS: Final = 32
_SAMPLE_US: Final = 120_000_000
_CARRIED: Final = """
SELECT run, src, dst, size, count(*) AS cells, min(t_us) AS first, max(t_us) AS last FROM {cells}
GROUP BY run, src, dst, size
"""
_WITHIN: Final = """
SELECT /*+ BROADCAST(a), BROADCAST(b) */ a.network AS run, c.epoch, c.t_us, c.src, c.dst, c.size FROM {cells} AS c
JOIN {members} AS a ON c.src = a.node JOIN {members} AS b ON c.dst = b.node AND a.network = b.network
"""
_SAMPLED: Final = """
SELECT /*+ BROADCAST(s) */ c.run, c.t_us, c.src, c.dst, c.size FROM {cells} AS c
JOIN {some} AS s ON c.run = s.run AND c.src = s.src AND c.dst = s.dst WHERE c.t_us < s.until_us
"""
_FLOWS: Final = "SELECT run, src, dst, cast(sum(cells) as bigint) AS notes FROM {copies} GROUP BY run, src, dst"
_COPIES: Final = "SELECT run, t_us, src, dst FROM {copies}"
"""Cells of one link at one time are in one wave, so their number does not matter."""
_GAPS: Final = f"""
SELECT run, src, dst, cast(floor({BIN} * log2(1 + gap) + 1e-9) as bigint) AS bin, cast(sum(cells) as bigint) AS cells
FROM {{gaps}} GROUP BY run, src, dst, cast(floor({BIN} * log2(1 + gap) + 1e-9) as bigint)
"""  # noqa: S608
"""Bins of gaps; the tiny number takes a power of two into its own bin, however an engine rounds the logarithm."""
