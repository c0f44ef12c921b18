"""The reductions of a capture: from cells, of which there are very many, to what attackers need.

Cells are mostly heartbeats. `ReducedCells` reads the table `cells` at most twice, for all attackers together:

1. The first query counts cells by link and epoch, by size and place in the heartbeat, and by node and time. It is one
   query with a grouping set for each part that a chosen attacker needs.
2. A function of one run's counts finds the size of its notifications (`publication_waves`).
3. The second query looks at each cell and its predecessor on the link. It counts gaps, and keeps the time of cells that
   are notifications: all other cells end in counts.

An observer that subscribes knows when something was published (table `published`). If no size stands out in a run,
the links that carried more than usual just after a publication stand for copies, each with its first such cell. On a
network that hides nothing these links are the mesh. On a network that hides everything they are random.

A record can be cut into `parts` of equal length. A part is then a run of its own beside the whole record, and costs no
further look at the cells. A gap belongs to a part if both of its cells do. Parts are too short to find the size of
notifications, so that of the whole record is used.

Integers stay integers: a microsecond since 1970, times `BINS_PER_HEARTBEAT`, exceeds what a double can hold. So times
are rounded down by a remainder and stay multiples of their unit.
"""

# ruff: noqa: S608 - queries are put together from constants of this module.

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab.attack.grouped_tables import distinct_values
from veilcast.lab.attack.observer.cadence import GRAIN_US, WINDOW_US
from veilcast.lab.attack.observer.flow_correlation import BINS_PER_HEARTBEAT
from veilcast.lab.attack.observer.publication_waves import PHASE_BIN_US, notification_size
from veilcast.lab.attack.registry import ACTIVITY, CADENCE, DEPARTURES, VOLUMES, WAVES, WINDOWS
from veilcast.lab.attack.table_engine import AnyTable, engine_of


class NotificationSize(msgspec.Struct, frozen=True):
    run: str
    heartbeat_us: int
    size: int


class RecordParts(msgspec.Struct, frozen=True):
    """The parts of a run's record: each of `length_us`, the first from `first_us` on."""

    run: str
    first_us: int
    length_us: int


class ReducedCells:
    """The relations of a capture, each computed when it is first asked for. All have the columns run and part."""

    def __init__(self, observed: Mapping[str, Any], needs: Collection[str], parts: AnyTable | None = None) -> None:
        """`observed` are tables by their names: `cells`, and, if known, `facts` and `published`. `parts` has rows of
        `RecordParts`."""
        self._cells, self._parts = observed["cells"], parts
        self._published = observed.get("published")
        self._needs = frozenset(needs)
        self._engine = engine_of(self._cells)
        given = observed.get("facts")
        facts = "SELECT '' AS run, '' AS name, cast(0 as double) AS value WHERE 1 = 0" if given is None else _ALL_FACTS
        self.facts = self._engine.query(_FACTS.format(facts=facts), **({} if given is None else {"facts": given}))
        """Columns run, heartbeat_us, round_us, begins_us, rate, covers: the public facts, of runs that have any."""

    @property
    def has_parts(self) -> bool:
        return self._parts is not None

    @cached_property
    def runs(self) -> AnyTable:
        """Columns run, part, heartbeat_us, round_us, begins_us, rate, covers: every run, and part of one, that has
        cells."""
        return self._query(
            f"SELECT r.run, r.part, coalesce(f.heartbeat_us, {HEARTBEAT_US}) AS heartbeat_us, "
            f"coalesce(f.round_us, {HEARTBEAT_US}) AS round_us, coalesce(f.begins_us, cast(0 as bigint)) AS begins_us, "
            f"coalesce(f.rate, cast({SUBSCRIBER_SHARE} as double)) AS rate, "
            "coalesce(f.covers, cast(0 as double)) AS covers FROM "
            "(SELECT DISTINCT run, part FROM {summary} WHERE kind = 'links') AS r "
            "LEFT JOIN {facts} AS f ON r.run = f.run",
            summary=self._summary,
            facts=self.facts,
        )

    @cached_property
    def nodes(self) -> AnyTable:
        """Columns run, node: every node that sent or received anything in the run."""
        return self._query(
            "SELECT run, src AS node FROM {summary} WHERE kind = 'links' "
            "UNION SELECT run, dst AS node FROM {summary} WHERE kind = 'links'",
            summary=self._summary,
        )

    @cached_property
    def links(self) -> AnyTable:
        """Columns run, part, u, v: the pairs of nodes that exchanged cells, u < v."""
        return self._query(
            "SELECT DISTINCT run, part, least(src, dst) AS u, greatest(src, dst) AS v FROM {summary} "
            "WHERE kind = 'links' AND src <> dst",
            summary=self._summary,
        )

    @cached_property
    def presence(self) -> AnyTable:
        """Columns run, part, epoch, node: the nodes with any cell in each epoch."""
        return self._query(
            "SELECT run, part, epoch, src AS node FROM {summary} WHERE kind = 'links' "
            "UNION SELECT run, part, epoch, dst AS node FROM {summary} WHERE kind = 'links'",
            summary=self._summary,
        )

    @property
    def volumes(self) -> AnyTable:
        """Columns run, part, bin, node, arriving, bytes: the bytes that left (0) and reached (1) each node, in parts of
        a heartbeat; `bin` is the time times `BINS_PER_HEARTBEAT`."""
        return self._query(
            "SELECT run, part, bin, coalesce(src, dst) AS node, "
            "cast(CASE WHEN kind = 'arriving' THEN 1 ELSE 0 END as bigint) AS arriving, bytes "
            "FROM {summary} WHERE kind IN ('leaving', 'arriving')",
            summary=self._summary,
        )

    @property
    def activity(self) -> AnyTable:
        """Columns run, part, round, node, bytes: the bytes that each node received in rounds; `round` is a time since
        the rounds began."""
        return self._query(
            "SELECT run, part, round, dst AS node, bytes FROM {summary} WHERE kind = 'received'", summary=self._summary
        )

    @property
    def departures(self) -> AnyTable:
        """The same for the bytes that each node sent."""
        return self._query(
            "SELECT run, part, round, src AS node, bytes FROM {summary} WHERE kind = 'sent'", summary=self._summary
        )

    @cached_property
    def notification_sizes(self) -> AnyTable:
        """Columns run, heartbeat_us, size: of each run in which any cell looks like a notification."""
        beats = self._query(
            f"SELECT s.run, src, dst, size, phase, cells, coalesce(f.heartbeat_us, {HEARTBEAT_US}) AS heartbeat_us "
            "FROM {summary} AS s LEFT JOIN {facts} AS f ON s.run = f.run WHERE kind = 'sizes'",
            summary=self._summary,
            facts=self.facts,
        )
        return self._engine.apply_by(beats, ["run"], _find_size, NotificationSize)

    @property
    def gaps(self) -> AnyTable:
        """Columns run, part, src, dst, gap, size, cells: `cadence.GapCounts`. A gap between two parts has no part."""
        return self._query(
            "SELECT run, CASE WHEN inside THEN part END AS part, src, dst, gap, size, "
            "cast(sum(cells) as bigint) AS cells FROM {followed} WHERE kind = 'gaps' AND gap IS NOT NULL "
            "GROUP BY run, CASE WHEN inside THEN part END, src, dst, gap, size",
            followed=self._followed,
        )

    @property
    def windows(self) -> AnyTable:
        """Columns run, window, src, dst, feature, value: sums over windows of each link, a row for each of them."""
        rows = [
            f"SELECT run, window_us, src, dst, '{feature}' AS feature, cast({feature} as double) AS value "
            "FROM {followed} WHERE kind = 'windows' AND follows > 0"
            for feature in WINDOW_SUMS
        ]
        return self._query(" UNION ALL ".join(rows), followed=self._followed)

    @cached_property
    def copies(self) -> AnyTable:
        """Columns run, part, epoch, t_us, src, dst, cells: the cells that look like copies of publications."""
        marked = "SELECT run, part, epoch, t_us, src, dst, cells FROM {followed} WHERE epoch IS NOT NULL"
        if self._published is None:
            return self._query(marked, followed=self._followed)
        lasted = (
            "SELECT run, src, dst, cast(sum(cells) as bigint) AS cells, min(first_us) AS first_us, "
            "max(last_us) AS last_us FROM {summary} WHERE kind = 'links' GROUP BY run, src, dst"
        )
        return self._query(
            f"SELECT m.* FROM ({marked}) AS m JOIN {{sizes}} AS s ON m.run = s.run UNION ALL ({_AFTER})".replace(
                "{marked}", f"({marked})"
            ).replace("{lasted}", f"({lasted})"),
            followed=self._followed,
            sizes=self.notification_sizes,
            summary=self._summary,
            moments=self._moments,
        )

    @cached_property
    def _summary(self) -> AnyTable:
        """The first query: columns kind, run, part, those of its grouping set, cells, bytes, first_us and last_us."""
        kinds = {"links": "epoch, src, dst"}
        if self._needs & {WAVES}:
            kinds["sizes"] = "src, dst, size, phase"
        if VOLUMES in self._needs:
            kinds |= {"leaving": "bin, src", "arriving": "bin, dst"}
        if ACTIVITY in self._needs:
            kinds["received"] = "round, dst"
        if DEPARTURES in self._needs:
            kinds["sent"] = "round, src"
        grouped = ("epoch", "src", "dst", "size", "phase", "bin", "round")
        used = [name for name in grouped if any(name in columns.split(", ") for columns in kinds.values())]
        absent = [f"cast(null as bigint) AS {name}" for name in grouped if name not in used]
        named = " ".join(
            f"WHEN {' AND '.join(f'grouping({name}) = 0' for name in columns.split(', '))} THEN '{kind}'"
            for kind, columns in kinds.items()
        )
        fine = f"(t_us - begins_us) * {BINS_PER_HEARTBEAT}"
        sets = ", ".join(f"(run, part, {columns})" for columns in kinds.values())
        return self._keep(
            f"SELECT CASE {named} END AS kind, run, part, {', '.join([*used, *absent])}, count(*) AS cells, "
            "cast(sum(carried) as bigint) AS bytes, min(t_us) AS first_us, max(t_us) AS last_us FROM ("
            "SELECT run, part, epoch, src, dst, size, size AS carried, t_us, "
            f"t_us % heartbeat_us - t_us % heartbeat_us % {PHASE_BIN_US} AS phase, "
            f"{fine} - {fine} % heartbeat_us AS bin, (t_us - begins_us) - (t_us - begins_us) % round_us AS round "
            f"FROM ({self._placed})) AS placed GROUP BY GROUPING SETS ({sets})"
        )

    @cached_property
    def _followed(self) -> AnyTable:
        """The second query: columns kind, run, part, src, dst, size, cells; gap (in grains; null for the first cell of
        a link) and `inside` (whether the predecessor is of the same part); t_us and epoch, null unless the cell is
        kept; and, with kind 'windows', window_us and `WINDOW_SUMS`."""
        follows = self._needs & {CADENCE, WINDOWS}
        kept, joined, inputs = "false", "", {}
        if WAVES in self._needs:
            kept, joined = "c.size = s.size", "LEFT JOIN {sizes} AS s ON c.run = s.run "
            inputs["sizes"] = self.notification_sizes
            if self._published is not None:
                kept += " OR (s.size IS NULL AND m.bucket IS NOT NULL)"
                joined += (
                    "LEFT JOIN (SELECT DISTINCT run, bucket FROM {moments}) AS m "
                    f"ON c.run = m.run AND c.t_us - c.t_us % {MOMENT_US} = m.bucket "
                )
                inputs["moments"] = self._moments
        marked = (
            "SELECT /*+ BROADCAST(s), BROADCAST(m) */ xxhash64(c.run, c.src, c.dst) AS link, c.t_us, c.size, c.part, "
            f"CASE WHEN {kept} THEN c.epoch END AS epoch FROM ({self._placed}) AS c {joined}"
        )
        if not follows:
            counted = (
                "SELECT 'gaps' AS kind, link, part, size, cast(null as bigint) AS gap, true AS inside, t_us, epoch, "
                f"count(*) AS cells FROM ({marked}) AS marked WHERE epoch IS NOT NULL "
                "GROUP BY link, part, size, t_us, epoch"
            )
        else:
            order = "OVER (PARTITION BY link ORDER BY t_us, size)"
            before = (
                f"SELECT link, t_us, size, part, epoch, t_us - lag(t_us) {order} AS gap_us, "
                f"lag(part) {order} AS before FROM ({marked}) AS marked"
            )
            counted = _count_followers(before, windows=WINDOWS in self._needs)
        return self._keep(
            "SELECT /*+ BROADCAST(l) */ l.run, l.src, l.dst, f.* FROM "
            f"({counted}) AS f JOIN (SELECT DISTINCT xxhash64(run, src, dst) AS named, run, src, dst FROM {{summary}} "
            "WHERE kind = 'links') AS l ON f.link = l.named",
            summary=self._summary,
            **inputs,
        )

    @cached_property
    def _moments(self) -> AnyTable:
        """Columns run, published_us, bucket: the stretches of `MOMENT_US` that the time after a publication touches."""
        return self._query(
            f"SELECT DISTINCT run, t_us AS published_us, t_us - t_us % {MOMENT_US} + n * {MOMENT_US} AS bucket "
            "FROM {published} CROSS JOIN "
            "(SELECT cast(0 as bigint) AS n UNION ALL SELECT cast(1 as bigint) AS n) AS twice",
            published=self._published,
        )

    @property
    def _placed(self) -> str:
        """The cells, with the part and the facts of their run."""
        part, joined = "cast(0 as bigint)", ""
        if self._parts is not None:
            since = "(t_us - p.first_us)"
            part = f"cast(({since} - {since} % p.length_us) / p.length_us as bigint)"
            joined = "JOIN {parts} AS p ON c.run = p.run"
        return (
            f"SELECT /*+ BROADCAST(f), BROADCAST(p) */ c.run, {part} AS part, c.epoch, c.t_us, c.src, c.dst, c.size, "
            f"coalesce(f.heartbeat_us, {HEARTBEAT_US}) AS heartbeat_us, "
            f"coalesce(f.round_us, {HEARTBEAT_US}) AS round_us, coalesce(f.begins_us, cast(0 as bigint)) AS begins_us "
            f"FROM {{cells}} AS c LEFT JOIN {{facts}} AS f ON c.run = f.run {joined}"
        )

    def _keep(self, sql: str, **inputs: AnyTable) -> AnyTable:
        """A query that reads the cells; its rows are kept."""
        return self._engine.keep(self._query(sql, cells=self._cells, facts=self.facts, parts=self._parts, **inputs))

    def _query(self, sql: str, **inputs: AnyTable | None) -> AnyTable:
        used = {name: table for name, table in inputs.items() if f"{{{name}}}" in sql}
        return self._engine.query(sql, **used)


def _find_size(rows: pa.Table) -> pa.Table:
    names = distinct_values([rows["src"], rows["dst"]])
    src, dst = (np.asarray(pc.index_in(rows[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
    t_us, size, many = (rows[name].to_numpy() for name in ("phase", "size", "cells"))
    found = notification_size(t_us, src, dst, size, rows["heartbeat_us"][0].as_py(), many)
    first = rows.select(["run", "heartbeat_us"]).slice(0, 0 if found is None else 1)
    return first.append_column("size", pa.array([found] * len(first), pa.int64()))


def _count_followers(before: str, *, windows: bool) -> str:
    """Count cells by the gap before them, or keep them; with `windows`, sum gaps and sizes over windows, too."""
    columns = "link, part, size, gap, inside, kept_us, epoch"
    sums = ", ".join(f"{sum_} AS {name}" for name, sum_ in WINDOW_SUMS.items())
    rows = (
        f"SELECT link, part, size, (gap_us - gap_us % {GRAIN_US}) / {GRAIN_US} AS grains, "
        "coalesce(part = before, false) AS inside, CASE WHEN epoch IS NOT NULL THEN t_us END AS kept_us, "
        "epoch, gap_us, "
        f"CASE WHEN gap_us IS NOT NULL THEN size END AS next_size, t_us - t_us % {WINDOW_US} AS window_us "
        f"FROM ({before}) AS before"
    )
    rows = f"SELECT *, cast(grains as bigint) AS gap FROM ({rows}) AS rounded"
    if not windows:
        return (
            "SELECT 'gaps' AS kind, link, part, size, gap, inside, kept_us AS t_us, epoch, count(*) AS cells "
            f"FROM ({rows}) AS followed GROUP BY {columns}"
        )
    return (
        "SELECT CASE WHEN grouping(window_us) = 0 THEN 'windows' ELSE 'gaps' END AS kind, link, part, size, gap, "
        f"inside, kept_us AS t_us, epoch, window_us, count(*) AS cells, {sums} FROM ({rows}) AS followed "
        f"GROUP BY GROUPING SETS (({columns}), (link, window_us))"
    )


HEARTBEAT_US: Final = 1_000_000
"""Heartbeat of a run without a fact that tells it, in microseconds."""
SUBSCRIBER_SHARE: Final = 0.1
"""Share of subscribers, if no fact tells it."""
MOMENT_US: Final = 400_000
"""Time after a publication, in microseconds: a few hops in any profile."""
WINDOW_SUMS: Final = {
    "follows": "count(gap_us)",
    "gap_sum": "cast(sum(gap_us) as bigint)",
    "gap_squares": "cast(sum(cast(gap_us as double) * gap_us) as double)",
    "gap_least": "min(gap_us)",
    "gap_most": "max(gap_us)",
    "size_sum": "cast(sum(next_size) as bigint)",
    "size_squares": "cast(sum(cast(next_size as double) * next_size) as double)",
    "size_least": "min(next_size)",
    "size_most": "max(next_size)",
}
"""Sums over the cells of a link in a window that have a predecessor. Squares below 2^53 sum up exactly in doubles."""
_ALL_FACTS: Final = "SELECT run, name, value FROM {facts}"
_FACTS: Final = """
SELECT run, cast(max(CASE WHEN name = 'heartbeat_us' THEN value END) as bigint) AS heartbeat_us,
    cast(coalesce(max(CASE WHEN name = 'window_us' THEN value END), max(CASE WHEN name = 'heartbeat_us' THEN value END))
        as bigint) AS round_us,
    cast(max(CASE WHEN name = 'begins_us' THEN value END) as bigint) AS begins_us,
    max(CASE WHEN name = 'subscriber_share' THEN value END) AS rate,
    max(CASE WHEN name = 'cover_share' THEN value END) AS covers
FROM ({facts}) AS given GROUP BY run
"""
_AFTER: Final = f"""
SELECT DISTINCT a.run, a.part, a.epoch, a.t_us, a.src, a.dst, cast(1 as bigint) AS cells FROM (
    SELECT k.run, m.published_us, k.part, k.src, k.dst, min(k.epoch) AS epoch, min(k.t_us) AS t_us,
        cast(sum(k.cells) as bigint) AS carried
    FROM {{marked}} AS k JOIN {{moments}} AS m ON k.run = m.run AND k.t_us - k.t_us % {MOMENT_US} = m.bucket
    WHERE k.t_us >= m.published_us AND k.t_us < m.published_us + {MOMENT_US}
    GROUP BY k.run, m.published_us, k.part, k.src, k.dst) AS a
JOIN {{lasted}} AS l ON a.run = l.run AND a.src = l.src AND a.dst = l.dst
JOIN (SELECT run, greatest(1, max(last_us) - min(first_us)) AS lasted_us FROM {{lasted}} AS every GROUP BY run) AS w
    ON a.run = w.run
LEFT JOIN {{sizes}} AS s ON a.run = s.run
WHERE s.size IS NULL AND a.carried > cast(l.cells * {MOMENT_US} as double) / w.lasted_us
"""
"""Copies of a publication that no size tells: the first cell of each link that carries more than usual after it."""
