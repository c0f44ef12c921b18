"""Heartbeats on tables: the cells of runs in, guesses about members and subscribers out.

1. Most cells of a run are heartbeats, which have one size. One query turns the cells of each pair of nodes into spans:
   the times in which heartbeats came without a pause, and the copies of notifications.
2. The spans of a run and its overlay go to one task, where the attackers of the registry score every node.

The tables `cells` and `topology` are needed. `facts` tells the heartbeat and the share of subscribers.
"""

# ruff: noqa: S608 - queries are put together from constants of this module.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, make_guesses, union_tables
from veilcast.lab.attack.observer.heartbeat_pairs import HeartbeatObservations, PairSpans
from veilcast.lab.attack.observer.reduced_cells import HEARTBEAT_US, SUBSCRIBER_SHARE
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.graph import from_edges
from veilcast.lab.tables import GuessRow


def guess_from_heartbeats(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """Score every node by each attack. The whole record counts, whatever `epochs` says."""
    if "topology" not in observed:
        raise ConfigError("pairs outside the overlay are told by the table topology")
    chosen = attackers_on(HeartbeatObservations, names, called="attack on heartbeats")
    engine = engine_of(observed["cells"])
    facts = engine.query(_FACTS.format(facts="{facts}" if "facts" in observed else _NO_FACTS), **_given(observed))
    spans = engine.query(_SPANS, cells=observed["cells"], facts=facts)
    links = engine.query("SELECT DISTINCT run, u, v FROM {table}", table=observed["topology"])

    def of_run(rows: pa.Table) -> pa.Table:
        run = GroupedRun(rows)
        seen = _observe(run)
        parts = [tables.arrow_schema(GuessRow).empty_table()]
        for each in chosen:
            parts.append(make_guesses(run.run, each.name, 1, 0, "", each.role, run.names, each.score(seen)))
        return pa.concat_tables(parts)

    rows = union_tables(
        [
            RunTable(
                _HEARTBEATS, spans, {"at": "first_us", "number": "last_us", "share": "copies", "u": "src", "v": "dst"}
            ),
            RunTable(_LINKS, links, {"u": "u", "v": "v"}),
            RunTable(_KNOWN, facts, {"at": "heartbeat_us", "share": "rate"}),
        ]
    )
    return engine.apply_by(rows, ["run"], of_run, GuessRow)


def _given(observed: Mapping[str, AnyTable]) -> dict[str, Any]:
    return {name: observed[name] for name in ("cells", "facts") if name in observed}


def _observe(run: GroupedRun) -> HeartbeatObservations:
    spans, links, known = map(run.table, (_HEARTBEATS, _LINKS, _KNOWN))

    def those(copies: float) -> PairSpans:
        rows = spans.filter(pc.equal(spans["share"], copies))
        ends = run.node_numbers(rows["u"]), run.node_numbers(rows["v"])
        return PairSpans(*ends, rows["at"].to_numpy(), rows["number"].to_numpy())

    return HeartbeatObservations(
        graph=from_edges(len(run.names), run.node_numbers(links["u"]), run.node_numbers(links["v"])),
        heartbeats=those(0.0),
        copies=those(1.0),
        heartbeat_us=known["at"][0].as_py(),
        rate=known["share"][0].as_py(),
    )


_HEARTBEATS: Final = "heartbeats"
_LINKS: Final = "links"
_KNOWN: Final = "known"
_NO_FACTS: Final = "(SELECT '' AS run, '' AS name, cast(0 as double) AS value WHERE 1 = 0)"
_FACTS: Final = f"""
SELECT r.run, coalesce(f.heartbeat_us, {HEARTBEAT_US}) AS heartbeat_us,
    coalesce(f.rate, cast({SUBSCRIBER_SHARE} as double)) AS rate
FROM (SELECT DISTINCT run FROM {{{{cells}}}}) AS r LEFT JOIN (
    SELECT run, cast(max(CASE WHEN name = 'heartbeat_us' THEN value END) as bigint) AS heartbeat_us,
        max(CASE WHEN name = 'subscriber_share' THEN value END) AS rate
    FROM {{facts}} AS told GROUP BY run) AS f ON r.run = f.run
"""
_SPANS: Final = """
WITH sizes AS (
    SELECT run, size FROM (
        SELECT run, size, row_number() OVER (PARTITION BY run ORDER BY many DESC, size) AS place
        FROM (SELECT run, size, count(*) AS many FROM {cells} AS counted GROUP BY run, size) AS ranked) AS numbered
    WHERE place = 1),
marked AS (
    SELECT c.run, c.src, c.dst, c.t_us, CASE WHEN c.size = s.size THEN 0 ELSE 1 END AS other, f.heartbeat_us
    FROM {cells} AS c JOIN sizes AS s ON c.run = s.run JOIN {facts} AS f ON c.run = f.run),
spaced AS (
    SELECT *, t_us - lag(t_us) OVER (PARTITION BY run, src, dst, other ORDER BY t_us) AS gap_us FROM marked),
counted AS (
    SELECT *, sum(CASE WHEN gap_us > 3 * heartbeat_us THEN 1 ELSE 0 END)
        OVER (PARTITION BY run, src, dst, other ORDER BY t_us) AS span FROM spaced)
SELECT run, src, dst, cast(other as double) AS copies, span, min(t_us) AS first_us, max(t_us) AS last_us
FROM counted GROUP BY run, src, dst, other, span
"""
