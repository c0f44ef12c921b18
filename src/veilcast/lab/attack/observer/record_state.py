"""The state of an endless record: what is left of its cells, in counts that add up from batch to batch.

`reduce_cells` reduces the cells of one part of a batch, where they are. `RecordState.merge` adds the results of all
parts. `KeptReductions` then has the relations of `ReducedCells`, so the attackers of the registry read a stream as they
read a record. All counts are integers, and their sums do not depend on how the record was cut into batches and parts:

1. Cells are counted by link, epoch and size; and by link, size and place in the heartbeat. Counts add up.
2. Gaps are counted by link, length and size. A part also tells the first and the last cell of each link. The gap
   between two parts is that between the last cell of the one and the first cell of the other.
3. A cell of a size that nearly every link carries is no notification (`publication_waves.usual_sizes`), and ends in
   counts. Cells of other sizes are kept with their times. A record settles after `SETTLE_US`: it drops the cells of
   sizes that are usual by then. Until then every cell is kept.

Bound: a link has a row for each of its epochs, sizes, gap lengths and places in a heartbeat, however many cells it
carries. Only cells of unusual sizes are kept one by one. If all rows together exceed a limit, the record ends early:
the caller closes it and begins another. So the state is bounded whatever strangers send.

The state counts where a stream differs from a record. `blurred` lists sizes whose cells were dropped as usual, and that
are usual no more: notifications of such a size are incomplete. `disordered` counts links whose cells came in another
order than that of their times: some of their gaps are wrong.

Phases need the length of a heartbeat, which is estimated from the first `SAMPLE_US` of some links. If a later estimate
moves phases by half a bin, the next batch begins to count them again. Phases only tell the size of a notification.
"""

# ruff: noqa: S608 - queries are put together from constants of this module.

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import distinct_values
from veilcast.lab.attack.observer.cadence import GRAIN_US
from veilcast.lab.attack.observer.publication_waves import PHASE_BIN_US, estimate_heartbeat_us, usual_sizes
from veilcast.lab.attack.observer.reduced_cells import HEARTBEAT_US, ReducedCells
from veilcast.lab.attack.registry import WAVES
from veilcast.lab.attack.table_engine import ArrowEngine
from veilcast.observe import FactRow


class SettledRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record whose usual sizes are known."""

    heartbeat_us: int
    usual: tuple[int, ...]
    """Sizes whose cells are dropped."""
    sampled: tuple[tuple[str, str], ...]
    """Links whose cells are kept until `sample_until_us`, to estimate the heartbeat."""
    sample_until_us: int


class ReductionPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The decisions by which tasks reduce the parts of a batch; the state makes them before the batch."""

    window_us: int = 0
    """Length of a record; 0 for one record without end."""
    settled: dict[int, SettledRecord] = {}
    """Records by their begin."""


def reduce_cells(cells: pa.Table, plan: ReductionPlan) -> pa.Table:
    """The rows of `STATE` that the cells of one part of a batch become."""
    engine = ArrowEngine()
    since = f"t_us - t_us % {plan.window_us}" if plan.window_us else "cast(0 as bigint)"
    placed = engine.query(
        f"SELECT {since} AS since, epoch, t_us, src, dst, size, cast(1 as bigint) AS cells FROM {{cells}}", cells=cells
    )
    found = [engine.query(sql, placed=placed) for sql in (_LINKS, _GAPS, _EDGES)]
    begun = pa.array(list(plan.settled), pa.int64())
    found.append(_keep_copies(placed.filter(pc.invert(pc.is_in(placed["since"], begun)))))
    for start, record in plan.settled.items():
        found += _split_by_size(placed.filter(pc.equal(placed["since"], start)), record)
    return pa.concat_tables([_as_state(part) for part in found])


class RecordState:
    """The rows of all open records, and what was decided about each."""

    def __init__(self, window_us: int = 0) -> None:
        self.rows = STATE.empty_table()
        self.plan = ReductionPlan(window_us)
        self.disordered: dict[int, int] = {}
        """Number of times that a link's cells were out of order, by record."""
        self.restarts: dict[int, int] = {}
        """Records whose phases the next batch replaces, with the heartbeat of the phases until then."""

    @property
    def records(self) -> list[int]:
        """The begins of the open records, in order."""
        return sorted(pc.unique(self.rows["since"]).to_pylist())

    def merge(self, parts: pa.Table) -> None:
        """Add the rows of all parts of a batch, which were made by the current plan."""
        engine = ArrowEngine()
        anew = self.restarts.keys() & set(pc.unique(of_kind(parts, "phases")["since"]).to_pylist())
        self.restarts = {since: beat for since, beat in self.restarts.items() if since not in anew}
        stale = pc.and_(
            pc.equal(self.rows["kind"], "phases"), pc.is_in(self.rows["since"], pa.array(sorted(anew), pa.int64()))
        )
        both = pa.concat_tables([self.rows.filter(pc.invert(stale)), parts])
        joined = engine.query(_JOINED, edges=of_kind(both, "edges"))
        for since in joined.filter(pc.less(joined["gap_us"], 0))["since"].to_pylist():
            self.disordered[since] = self.disordered.get(since, 0) + 1
        gaps, edges = (_as_state(engine.query(sql, joined=joined)) for sql in (_GAPS_BETWEEN, _WHOLE_EDGES))
        every = pa.concat_tables([both.filter(pc.not_equal(both["kind"], "edges")), gaps, edges])
        self.rows = _as_state(engine.query(_ADDED, rows=every))
        for since in self.records:
            self._decide(since)

    def record(self, since: int) -> pa.Table:
        """The rows of one record."""
        return self.rows.filter(pc.equal(self.rows["since"], since))

    def heartbeat_us(self, since: int) -> int | None:
        """The heartbeat with which the phases of a record were counted; None before it has settled."""
        record = self.plan.settled.get(since)
        return None if record is None else self.restarts.get(since, record.heartbeat_us)

    def settle(self, since: int) -> None:
        """Decide which sizes of a record are usual, and drop their cells."""
        rows = self.record(since)
        record = begin_record(rows)
        self._drop_copies(since, None)
        self.rows = pa.concat_tables([self.rows, *map(_as_state, _split_by_size(_kept_cells(rows), record))])
        self._settle_as(since, record)

    def close(self, since: int) -> None:
        """Forget a record."""
        self.rows = self.rows.filter(pc.not_equal(self.rows["since"], since))
        self.disordered.pop(since, None)
        self.restarts.pop(since, None)
        self._settle_as(since, None)

    def _decide(self, since: int) -> None:
        rows = self.record(since)
        links = of_kind(rows, "links")
        record = self.plan.settled.get(since)
        if record is None:
            if pc.max(links["last_us"]).as_py() - pc.min(links["first_us"]).as_py() >= SETTLE_US:
                self.settle(since)
            return
        if more := set(_usual_of_networks(links)) - set(record.usual):
            self._drop_copies(since, sorted(more))
            record = msgspec.structs.replace(record, usual=tuple(sorted({*record.usual, *more})))
        beat = _estimate(of_kind(rows, "sample"))
        lasted_us = pc.max(links["last_us"]).as_py() - pc.min(links["first_us"]).as_py()
        if beat is not None and abs(beat - record.heartbeat_us) * lasted_us > _DRIFT_US * beat:
            self.restarts.setdefault(since, record.heartbeat_us)
            record = msgspec.structs.replace(record, heartbeat_us=beat)
        self._settle_as(since, record)

    def _drop_copies(self, since: int, sizes: list[int] | None) -> None:
        """Drop the kept cells of a record, of these sizes or of all."""
        gone = pc.and_(pc.equal(self.rows["since"], since), pc.equal(self.rows["kind"], "copies"))
        if sizes is not None:
            gone = pc.and_(gone, pc.is_in(self.rows["size"], pa.array(sizes, pa.int64())))
        self.rows = self.rows.filter(pc.invert(gone))

    def _settle_as(self, since: int, record: SettledRecord | None) -> None:
        settled = {begin: known for begin, known in self.plan.settled.items() if begin != since}
        self.plan = ReductionPlan(self.plan.window_us, settled if record is None else settled | {since: record})


class KeptReductions(ReducedCells):
    """The relations of one record, or of some of its links, as a run with this name."""

    def __init__(self, rows: pa.Table, state: RecordState, since: int, run: str, needs: Collection[str]) -> None:
        record = state.plan.settled.get(since)
        beat = state.heartbeat_us(since) or begin_record(rows).heartbeat_us
        facts = tables.from_rows(FactRow, [FactRow(run, "heartbeat_us", float(beat))])
        super().__init__({"cells": rows, "facts": facts}, needs)
        self._rows = {kind: of_kind(rows, kind).drop_columns(["kind"]) for kind in _KINDS}
        self._run, self._beat, self._dropped = run, beat, record.usual if record else ()

    @property
    def blurred(self) -> list[int]:
        """Sizes of these links whose cells were dropped as usual, and that are not usual here."""
        links = self._rows["links"]
        return sorted(set(self._dropped).intersection(links["size"].unique().to_pylist()) - set(_usual_sizes(links)))

    @property
    def notification_size(self) -> int | None:
        found: Any = self.notification_sizes
        return found["size"][0].as_py() if len(found) else None

    @cached_property
    def _summary(self) -> pa.Table:
        tables = {kind: self._rows[kind] for kind in ("links", "phases", "copies")}
        sql = _SUMMARY.format(run=self._run, dropped=", ".join(map(str, self._dropped)) or "null", beat=self._beat)
        return ArrowEngine().query(sql, **tables)

    @cached_property
    def _followed(self) -> pa.Table:
        size = self.notification_size if WAVES in self._needs else None
        tables = {kind: self._rows[kind] for kind in ("gaps", "copies")}
        sql = _FOLLOWED.format(run=self._run, size="null" if size is None else size)
        return ArrowEngine().query(sql, **tables)


def begin_record(rows: pa.Table) -> SettledRecord:
    """The decisions about a record of which every cell was kept."""
    links = of_kind(rows, "links")
    names = _split_networks(links)[0].group_by(["src", "dst"]).aggregate([])
    some = names.sort_by([("src", "ascending"), ("dst", "ascending")]).slice(0, _SAMPLE_LINKS).to_pylist()
    sampled = tuple((row["src"], row["dst"]) for row in some)
    until_us = pc.min(links["first_us"]).as_py() + SAMPLE_US
    record = SettledRecord(HEARTBEAT_US, tuple(_usual_of_networks(links)), sampled, until_us)
    beat = _estimate(_sample(_kept_cells(rows), record))
    return record if beat is None else msgspec.structs.replace(record, heartbeat_us=beat)


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.filter(pc.equal(rows["kind"], kind))


def _split_networks(links: pa.Table) -> list[pa.Table]:
    """The links of each network, the network with the most links first. Nodes that answer one another are a network: a
    node that only sends to one changes nothing in it."""
    pairs = links.group_by(["src", "dst"]).aggregate([])
    names = distinct_values([pairs["src"], pairs["dst"]])
    src, dst = (pc.index_in(pairs[end], names).to_numpy() for end in ("src", "dst"))
    answered = np.isin(src * len(names) + dst, dst * len(names) + src)
    shape = (len(names), len(names))
    ways = coo_array((np.ones(np.count_nonzero(answered)), (src[answered], dst[answered])), shape)
    _, group = connected_components(ways, directed=False)
    number = group[pc.index_in(links["src"], names).to_numpy()]
    inside = number == group[pc.index_in(links["dst"], names).to_numpy()]
    many = np.bincount(number[inside])
    largest = np.argsort(-many, kind="stable")[:_NETWORKS_MAX]
    found = [links.filter(pa.array(inside & (number == each))) for each in largest if many[each]]
    return found or [links]


def _usual_of_networks(links: pa.Table) -> list[int]:
    """The sizes that are usual in any network."""
    return sorted({size for network in _split_networks(links) for size in _usual_sizes(network)})


def _kept_cells(rows: pa.Table) -> pa.Table:
    kept = of_kind(rows, "copies")
    return kept.select(["since", "epoch", "src", "dst", "size", "cells"]).append_column("t_us", kept["value"])


def _usual_sizes(links: pa.Table) -> list[int]:
    """The sizes that nearly every link carries."""
    pairs = links.group_by(["src", "dst", "size"]).aggregate([])
    names = distinct_values([pairs["src"], pairs["dst"]])
    src, dst = (np.asarray(pc.index_in(pairs[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
    found: list[int] = usual_sizes(src, dst, pairs["size"].to_numpy()).tolist()
    return found


def _split_by_size(cells: pa.Table, record: SettledRecord) -> list[pa.Table]:
    """The rows of cells of a settled record: kept cells, phases, and the sample for the heartbeat."""
    known = pc.is_in(cells["size"], pa.array(record.usual, pa.int64()))
    phases = ArrowEngine().query(
        _PHASES.format(placed="{placed}", beat=record.heartbeat_us), placed=cells.filter(known)
    )
    return [_keep_copies(cells.filter(pc.invert(known))), phases, _sample(cells, record)]


def _keep_copies(cells: pa.Table) -> pa.Table:
    return ArrowEngine().query(_COPIES, placed=cells)


def _sample(cells: pa.Table, record: SettledRecord) -> pa.Table:
    early = cells.filter(pc.less(cells["t_us"], record.sample_until_us))
    ends = ([link[end] for link in record.sampled] for end in (0, 1))
    links = pa.table(dict(zip(("u", "v"), (pa.array(each, pa.string()) for each in ends), strict=True)))
    return ArrowEngine().query(_SAMPLED, placed=early, links=links)


def _estimate(sample: pa.Table) -> int | None:
    names = distinct_values([sample["src"], sample["dst"]])
    src, dst = (np.asarray(pc.index_in(sample[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
    many = sample["cells"].to_numpy()
    columns = (np.repeat(column, many) for column in (sample["value"].to_numpy(), src, dst, sample["size"].to_numpy()))
    return estimate_heartbeat_us(*columns)


def _as_state(rows: pa.Table) -> pa.Table:
    """The rows with the columns of a state; 0 in those that they lack."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(0, field.type), len(rows))
        for field in STATE
    ]
    return pa.table(columns, STATE)


STATE: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "src", "dst")),
        *((name, pa.int64()) for name in ("since", "epoch", "size", "value", "cells", "first_us", "last_us")),
    ]
)
"""Columns of a state. `value` is a gap in grains, a place in the heartbeat, or a time; `kind` says which."""
_KINDS: Final = ("links", "phases", "copies", "gaps")
SETTLE_US: Final = 5_000_000
"""Time for which all cells of a record are kept one by one."""
SAMPLE_US: Final = 120_000_000
_SAMPLE_LINKS: Final = 32
_NETWORKS_MAX: Final = 16
"""Networks whose usual sizes are looked for, the largest first."""
_DRIFT_US: Final = PHASE_BIN_US // 2
_NAMED: Final = "since, src, dst"
_LINKS: Final = f"""
SELECT 'links' AS kind, {_NAMED}, epoch, size, cast(sum(cells) as bigint) AS cells, min(t_us) AS first_us,
    max(t_us) AS last_us FROM {{placed}} GROUP BY {_NAMED}, epoch, size
"""
_GAPS: Final = f"""
SELECT 'gaps' AS kind, {_NAMED}, size, cast((gap_us - gap_us % {GRAIN_US}) / {GRAIN_US} as bigint) AS value,
    count(*) AS cells
FROM (SELECT {_NAMED}, size, t_us - lag(t_us) OVER (PARTITION BY {_NAMED} ORDER BY t_us, size) AS gap_us
    FROM {{placed}}) AS followed
WHERE gap_us IS NOT NULL GROUP BY {_NAMED}, size, (gap_us - gap_us % {GRAIN_US}) / {GRAIN_US}
"""
_EDGES: Final = f"""
SELECT 'edges' AS kind, {_NAMED}, arg_min(size, (t_us, size)) AS size, min(t_us) AS first_us, max(t_us) AS last_us
FROM {{placed}} GROUP BY {_NAMED}
"""
"""`size` is that of the first cell: it is the size that the gap before the part counts with."""
_COPIES: Final = f"""
SELECT 'copies' AS kind, {_NAMED}, epoch, size, t_us AS value, cast(sum(cells) as bigint) AS cells FROM {{placed}}
GROUP BY {_NAMED}, epoch, size, t_us
"""
_PHASES: Final = f"""
SELECT 'phases' AS kind, {_NAMED}, size, t_us % {{beat}} - t_us % {{beat}} % {PHASE_BIN_US} AS value,
    cast(sum(cells) as bigint) AS cells
FROM {{placed}} GROUP BY {_NAMED}, size, t_us % {{beat}} - t_us % {{beat}} % {PHASE_BIN_US}
"""
_SAMPLED: Final = """
SELECT 'sample' AS kind, since, src, dst, size, t_us AS value, cast(sum(cells) as bigint) AS cells
FROM {placed} AS c JOIN {links} AS l ON c.src = l.u AND c.dst = l.v GROUP BY since, src, dst, size, t_us
"""
_JOINED: Final = f"""
SELECT {_NAMED}, size, first_us, last_us,
    first_us - max(last_us) OVER (PARTITION BY {_NAMED} ORDER BY first_us, size, last_us
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS gap_us FROM {{edges}}
"""
_GAPS_BETWEEN: Final = f"""
SELECT 'gaps' AS kind, {_NAMED}, size, cast((gap_us - gap_us % {GRAIN_US}) / {GRAIN_US} as bigint) AS value,
    cast(1 as bigint) AS cells FROM {{joined}} WHERE gap_us >= 0
"""
_WHOLE_EDGES: Final = f"""
SELECT 'edges' AS kind, {_NAMED}, arg_min(size, (first_us, size)) AS size, min(first_us) AS first_us,
    max(last_us) AS last_us FROM {{joined}} GROUP BY {_NAMED}
"""
_ADDED: Final = f"""
SELECT kind, {_NAMED}, epoch, size, value, cast(sum(cells) as bigint) AS cells, min(first_us) AS first_us,
    max(last_us) AS last_us FROM {{rows}} GROUP BY kind, {_NAMED}, epoch, size, value
"""
_SUMMARY: Final = f"""
SELECT kind, '{{run}}' AS run, cast(0 as bigint) AS part, epoch, src, dst, size, phase, cells, first_us, last_us
FROM (
    SELECT 'links' AS kind, *, cast(null as bigint) AS phase FROM {{{{links}}}}
    UNION ALL SELECT 'sizes', *, value FROM {{{{phases}}}}
    UNION ALL SELECT 'sizes', * REPLACE (cast(0 as bigint) AS cells), cast(0 as bigint) FROM {{{{links}}}}
    WHERE size IN ({{dropped}})
    UNION ALL SELECT 'sizes', *, value % {{beat}} - value % {{beat}} % {PHASE_BIN_US} FROM {{{{copies}}}}) AS s
"""
"""Sizes of which no cell was dropped come from their cells; the others from phases."""
_FOLLOWED: Final = """
SELECT 'gaps' AS kind, '{run}' AS run, cast(0 as bigint) AS part, src, dst, size, value AS gap, true AS inside,
    cast(null as bigint) AS t_us, cast(null as bigint) AS epoch, cells FROM {{gaps}}
UNION ALL SELECT 'gaps', '{run}', cast(0 as bigint), src, dst, size, cast(null as bigint), true, value, epoch, cells
FROM {{copies}} WHERE size = {size}
"""
