"""Flow correlation on tables: the bytes of each node in each bin in, the scores of each node out.

The work on one record is divided over time and nodes, so no task has a record of any length to itself:

1. A task for each node finds its rhythm: the median of each place in a heartbeat, from counts.
2. The record is cut into slices of time, and the nodes into blocks. A task has the departures of a block in a slice,
   and all arrivals of the slice and of a few bins behind it. It returns sums of products (`FlowSums`).
3. A task for each block adds up the slices, and correlates its nodes with all.
4. A task for each record compares the rows of all blocks.

Sums are exact, so the cut shows in no bit of a score. Slices and blocks depend on the record alone.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.observer.flow_correlation import (
    BINS_PER_HEARTBEAT,
    LAGS_MAX,
    FlowSums,
    Series,
    correlate_sums,
    find_rhythm,
    score_correlations,
)
from veilcast.lab.attack.table_engine import AnyTable, engine_of


class FlowPlan(msgspec.Struct, frozen=True):
    """How the work on a record is divided."""

    run: str
    least_bin: int
    heartbeat_us: int
    nodes: int
    bins: int
    """Whole heartbeats alone."""
    width: int
    """Bins of a slice."""
    height: int
    """Nodes of a block."""


class FlowSlice(msgspec.Struct, frozen=True):
    run: str
    slice: int
    block: int


class FlowRhythm(msgspec.Struct, frozen=True):
    run: str
    node: int
    arriving: int
    place: int
    twice: int
    """Twice the median."""


class SliceSums(msgspec.Struct, frozen=True):
    run: str
    slice: int
    block: int
    nodes: int
    bins: int
    sums: bytes


class BlockCorrelations(msgspec.Struct, frozen=True):
    run: str
    block: int
    nodes: int
    found: bytes
    """Leaving nodes of the block x all nodes."""


class NumberedFlowScore(msgspec.Struct, frozen=True):
    run: str
    number: int
    leads: int
    """1 for how much the node leads, 0 for how much it follows."""
    score: float


def score_volumes(volumes: AnyTable, nodes: AnyTable, heartbeats: AnyTable) -> AnyTable:
    """Columns run, node, leads, score. No rows for a run with more nodes than can be compared, or less than a period.

    `volumes` has the columns run, bin, node, arriving, bytes, as `ReducedCells`; `nodes` has run and node; `heartbeats`
    has run and heartbeat_us.
    """
    engine = engine_of(volumes)
    numbered = engine.keep(engine.query(_NUMBERED, nodes=nodes))
    extents = engine.query(_EXTENTS, volumes=volumes, numbered=numbered, beats=heartbeats)
    plans = engine.keep(engine.apply_by(extents, ["run"], _plan_run, FlowPlan))
    series = engine.keep(engine.query(_SERIES, volumes=volumes, numbered=numbered, plans=plans))
    places = engine.query(_PLACES, series=series, plans=plans)
    rhythm = engine.apply_by(places, ["run", "node"], _find_rhythms, FlowRhythm)
    slices = engine.keep(engine.apply_by(plans, ["run"], _list_slices, FlowSlice))
    rows = engine.query(_SLICED, series=series, plans=plans, slices=slices, rhythm=rhythm)
    sums = engine.apply_by(rows, ["run", "slice", "block"], _sum_slice, SliceSums)
    blocks = engine.apply_by(sums, ["run", "block"], _correlate_block, BlockCorrelations)
    scores = engine.apply_by(blocks, ["run"], _score_run, NumberedFlowScore)
    found: AnyTable = engine.query(_NAMED, scores=scores, numbered=numbered)
    return found


def _plan_run(extent: pa.Table) -> pa.Table:
    run, least_bin, heartbeat_us, nodes, bins = (
        extent[name][0].as_py() for name in ("run", "least_bin", "heartbeat_us", "nodes", "bins")
    )
    bins = min(bins, BINS_MAX // nodes)
    bins -= bins % BINS_PER_HEARTBEAT
    height = min(nodes, max(BLOCK_PAIRS // nodes, -(-nodes // _BLOCKS_MAX)))
    # A task adds up the sums of all slices of a block.
    width = max(LAGS_MAX, SLICE_VALUES // nodes, -(-bins * height * nodes // _SUMS_MAX))
    plan = FlowPlan(run, least_bin, heartbeat_us, nodes, bins, width, height)
    return tables.from_rows(FlowPlan, [plan] if bins and nodes <= NODES_MAX else [])


def _find_rhythms(counted: pa.Table) -> pa.Table:
    """Of the counts of one node, in both directions."""
    run, node, bins = (counted[name][0].as_py() for name in ("run", "node", "bins"))
    key = counted["arriving"].to_numpy() * BINS_PER_HEARTBEAT + counted["place"].to_numpy()
    values, cells = counted["bytes"].to_numpy(), counted["cells"].to_numpy()
    periods = bins // BINS_PER_HEARTBEAT
    found = {int(at): find_rhythm(values[key == at], cells[key == at], periods) for at in np.unique(key)}
    rows = [FlowRhythm(run, node, *divmod(at, BINS_PER_HEARTBEAT), twice) for at, twice in found.items() if twice]
    return tables.from_rows(FlowRhythm, rows)


def _list_slices(plan: pa.Table) -> pa.Table:
    run, nodes, bins, width, height = (plan[name][0].as_py() for name in ("run", "nodes", "bins", "width", "height"))
    pairs = [(part, block) for part in range(-(-bins // width)) for block in range(-(-nodes // height))]
    return tables.from_rows(FlowSlice, [FlowSlice(run, *pair) for pair in pairs])


def _sum_slice(rows: pa.Table) -> pa.Table:
    run, part, block, nodes, bins, width, height = (
        rows[name][0].as_py() for name in ("run", "slice", "block", "nodes", "bins", "width", "height")
    )
    first, low = part * width, block * height
    widths = min(width, bins - first), min(width, bins - first) + LAGS_MAX
    heights = min(height, nodes - low), nodes

    def read(arriving: int) -> Series:
        seen, known = (_take(rows, arriving + 2 * is_rhythm) for is_rhythm in (0, 1))
        start = 0 if arriving else low
        # Rows of rhythms have a place in the heartbeat for the bin.
        periodic = np.zeros((heights[arriving], BINS_PER_HEARTBEAT))
        periodic[known[0] - start, known[1]] = known[2]
        found = -periodic[:, (first + np.arange(widths[arriving])) % BINS_PER_HEARTBEAT]
        found[seen[0] - start, seen[1] - first] += 2 * seen[2]
        found[:, max(0, bins - first) :] = 0
        return found

    sums = FlowSums.of_stretch(read(0), read(1), first, bins, LAGS_MAX)
    return tables.from_rows(SliceSums, [SliceSums(run, part, block, nodes, bins, sums.to_bytes())])


def _take(rows: pa.Table, kind: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    chosen = rows.filter(pc.equal(rows["kind"], kind))
    node, at, value = (chosen[name].to_numpy() for name in ("node", "bin", "value"))
    return node, at, value


def _correlate_block(rows: pa.Table) -> pa.Table:
    run, block, nodes, bins = (rows[name][0].as_py() for name in ("run", "block", "nodes", "bins"))
    read = partial(FlowSums.from_bytes, arriving=nodes, bins=bins, lags=LAGS_MAX)
    sums = FlowSums.add(read(data) for data in rows.sort_by("slice")["sums"].to_pylist())
    found, _ = correlate_sums(sums, bins)
    return tables.from_rows(BlockCorrelations, [BlockCorrelations(run, block, nodes, found.tobytes())])


def _score_run(blocks: pa.Table) -> pa.Table:
    rows = blocks.sort_by("block")
    run, nodes = (rows[name][0].as_py() for name in ("run", "nodes"))
    parts = [np.frombuffer(data, np.float64).reshape(-1, nodes) for data in rows["found"].to_pylist()]
    scores = score_correlations(np.concatenate(parts))
    found = [
        NumberedFlowScore(run, number, leads, score)
        for leads, values in enumerate(scores)
        for number, score in enumerate(values.tolist())
    ]
    return tables.from_rows(NumberedFlowScore, found)


NODES_MAX: Final = 4_096
"""Largest number of nodes whose volumes are compared, all with all: some numbers of 8 bytes for each pair."""
BINS_MAX: Final = 1 << 28
"""Largest number of bins over all nodes, in each direction. Only the beginning of a longer record is counted."""
SLICE_VALUES: Final = 1 << 20
"""Bins over all nodes in a slice: 8 MB in each direction."""
BLOCK_PAIRS: Final = 1 << 17
"""Pairs of nodes in a block: a megabyte for each lag."""
_BLOCKS_MAX: Final = 8
"""Most blocks: the arrivals of a slice go to the tasks of all blocks."""
_SUMS_MAX: Final = 1 << 24
"""Most pairs of nodes in all slices of a block: 1.5 GB for all lags."""
_NUMBERED: Final = """
SELECT run, node, cast(dense_rank() OVER (PARTITION BY run ORDER BY node) - 1 as bigint) AS number
FROM (SELECT DISTINCT run, node FROM {nodes}) AS every
"""
_EXTENTS: Final = """
SELECT e.run, e.least_bin, b.heartbeat_us, n.nodes,
    cast((e.most_bin - e.least_bin) / b.heartbeat_us as bigint) + 1 AS bins
FROM (SELECT run, min(bin) AS least_bin, max(bin) AS most_bin FROM {volumes} GROUP BY run) AS e
JOIN (SELECT run, count(*) AS nodes FROM {numbered} GROUP BY run) AS n ON e.run = n.run
JOIN (SELECT DISTINCT run, heartbeat_us FROM {beats}) AS b ON e.run = b.run
"""
_SERIES: Final = """
SELECT /*+ BROADCAST(n), BROADCAST(p) */ v.run, n.number AS node, v.arriving,
    cast((v.bin - p.least_bin) / p.heartbeat_us as bigint) AS bin, cast(sum(v.bytes) as bigint) AS bytes
FROM {volumes} AS v JOIN {numbered} AS n ON v.run = n.run AND v.node = n.node JOIN {plans} AS p ON v.run = p.run
WHERE v.bin < p.least_bin + p.bins * p.heartbeat_us
GROUP BY v.run, n.number, v.arriving, cast((v.bin - p.least_bin) / p.heartbeat_us as bigint)
"""
_PLACES: Final = f"""
SELECT /*+ BROADCAST(p) */ s.run, s.node, s.arriving, p.bins, s.bin % {BINS_PER_HEARTBEAT} AS place, s.bytes,
    count(*) AS cells
FROM {{series}} AS s JOIN {{plans}} AS p ON s.run = p.run
GROUP BY s.run, s.node, s.arriving, p.bins, s.bin % {BINS_PER_HEARTBEAT}, s.bytes
"""  # noqa: S608
_SLICED: Final = f"""
WITH placed AS (
    SELECT /*+ BROADCAST(p) */ s.run, s.arriving, s.node, s.bin, s.bytes, s.bin % p.width AS since,
        cast((s.bin - s.bin % p.width) / p.width as bigint) AS slice,
        cast((s.node - s.node % p.height) / p.height as bigint) AS block
    FROM {{series}} AS s JOIN {{plans}} AS p ON s.run = p.run
), arrived AS (
    SELECT run, slice, node, bin, bytes FROM placed WHERE arriving = 1
    UNION ALL
    SELECT run, slice - 1 AS slice, node, bin, bytes FROM placed WHERE arriving = 1 AND since < {LAGS_MAX} AND slice > 0
), parts AS (
    SELECT run, slice, block, cast(0 as bigint) AS kind, node, bin, bytes AS value FROM placed WHERE arriving = 0
    UNION ALL
    SELECT /*+ BROADCAST(b) */ a.run, a.slice, b.block, cast(1 as bigint) AS kind, a.node, a.bin, a.bytes AS value
    FROM arrived AS a JOIN (SELECT DISTINCT run, block FROM {{slices}}) AS b ON a.run = b.run
    UNION ALL
    SELECT /*+ BROADCAST(k), BROADCAST(p) */ r.run, k.slice, k.block, 2 + r.arriving AS kind, r.node, r.place AS bin,
        r.twice AS value
    FROM {{rhythm}} AS r JOIN {{plans}} AS p ON r.run = p.run JOIN {{slices}} AS k ON r.run = k.run
    WHERE r.arriving = 1 OR cast((r.node - r.node % p.height) / p.height as bigint) = k.block
    UNION ALL
    SELECT run, slice, block, cast(4 as bigint) AS kind, cast(0 as bigint) AS node, cast(0 as bigint) AS bin,
        cast(0 as bigint) AS value FROM {{slices}}
)
SELECT /*+ BROADCAST(p) */ q.*, p.nodes, p.bins, p.width, p.height FROM parts AS q JOIN {{plans}} AS p ON q.run = p.run
"""  # noqa: S608
"""Kinds are 0 for departures, 1 for arrivals, and 2 and 3 for their rhythms. A slice without any of them has a row of
kind 4: no traffic, too, is less than the rhythm."""
_NAMED: Final = """
SELECT s.run, n.node, s.leads, s.score FROM {scores} AS s
JOIN {numbered} AS n ON s.run = n.run AND s.number = n.number
"""
