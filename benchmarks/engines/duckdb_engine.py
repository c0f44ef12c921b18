"""The reductions in DuckDB: SQL over Parquet, on the cores of one process."""

from __future__ import annotations

from typing import Final

import duckdb
import pyarrow as pa

from engines.lab_pipeline import BIN_US
from engines.reductions import EngineLimits
from engines.tiled_tables import HEARTBEAT_US, TiledTables


class DuckDbEngine:
    def __init__(self, tiled: TiledTables, limits: EngineLimits) -> None:
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": limits.cores,
            "temp_directory": limits.scratch,
            "preserve_insertion_order": False,
        }
        if limits.memory_mb is not None:
            config["memory_limit"] = f"{max(limits.memory_mb - _PYTHON_MB, limits.memory_mb // 2)}MB"
        self._database = duckdb.connect(":memory:", config=config)
        for name in ("cells", "insiders", "topology", "presence"):
            place = getattr(tiled, name)
            self._database.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{place}/*.parquet')")

    def reduce_links(self) -> pa.Table:
        return self._query(
            "SELECT DISTINCT run, least(src, dst) AS u, greatest(src, dst) AS v"
            " FROM (SELECT DISTINCT run, src, dst FROM cells) WHERE src <> dst"
        )

    def reduce_presence(self) -> pa.Table:
        return self._query(
            "WITH seen AS (SELECT DISTINCT run, epoch, src, dst FROM cells)"
            " SELECT DISTINCT run, epoch, unnest([src, dst]) AS node FROM seen WHERE src <> dst"
        )

    def count_beats(self) -> pa.Table:
        return self._query(
            f"SELECT run, src, dst, size, t_us % {HEARTBEAT_US} // {BIN_US} * {BIN_US} AS t_us, count(*) AS cells"
            " FROM cells GROUP BY ALL"
        )

    def select_notifications(self, sizes: pa.Table) -> pa.Table:
        self._database.register("sizes", sizes)
        return self._query("SELECT run, epoch, t_us, src, dst FROM cells SEMI JOIN sizes USING (run, size)")

    def count_gaps(self) -> pa.Table:
        # The sorted rows are narrow, as Spark's are: a link is a hash, and gets its names back afterwards.
        return self._query(
            "WITH cell AS (SELECT hash(run, src, dst) AS link, t_us, size::INTEGER AS size FROM cells),"
            " follower AS (SELECT link, size, t_us - lag(t_us) OVER (PARTITION BY link ORDER BY t_us, size) AS gap_us"
            "  FROM cell),"
            " counted AS (SELECT link, gap_us // 1000 AS gap, size, count(*) AS cells FROM follower"
            "  WHERE gap_us IS NOT NULL GROUP BY ALL),"
            " named AS (SELECT DISTINCT hash(run, src, dst) AS link, run, src, dst FROM cells)"
            " SELECT run, src, dst, gap, size, cells FROM counted JOIN named USING (link)"
        )

    def reduce_coalition(self) -> pa.Table:
        return self._query("SELECT DISTINCT run, observer AS node FROM insiders")

    def select_first_adverts(self) -> pa.Table:
        return self._query(
            "WITH ours AS (SELECT DISTINCT run, observer AS peer FROM insiders),"
            " heard AS (SELECT run, epoch, message, t_us, peer FROM insiders ANTI JOIN ours USING (run, peer)"
            "  WHERE kind = 'in:Advert'),"
            " first AS (SELECT run, epoch, message, min(t_us) AS t_us FROM heard GROUP BY ALL)"
            " SELECT run, epoch, message, peer, '' AS topic FROM heard"
            " SEMI JOIN first USING (run, epoch, message, t_us)"
        )

    def read_topology(self) -> pa.Table:
        return self._query("SELECT run, u, v FROM topology")

    def read_presence(self) -> pa.Table:
        return self._query("SELECT run, epoch, node FROM presence")

    def _query(self, sql: str) -> pa.Table:
        return self._database.sql(sql).to_arrow_table()


_PYTHON_MB: Final = 1_000
"""Memory left for the attackers, outside DuckDB's own limit."""
