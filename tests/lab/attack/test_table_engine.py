"""The two engines of attacks on tables: the same rows for the same query, and a function applied to each group once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilcast.lab import tables
from veilcast.lab.attack import table_engine
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, union_tables
from veilcast.lab.attack.table_engine import ArrowEngine, SparkEngine, TablesByKind, engine_of, scan_files
from veilcast.observe import CellRow, PresenceRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CELLS = tables.from_rows(
    CellRow,
    [
        CellRow(
            f"run {number % 3}",
            number // 40,
            1_700_000_000_000_000 + number * 70_001,
            f"n{number % 5}",
            f"n{number % 7}",
            400 + number % 2,
        )
        for number in range(120)
    ],
)
PRESENCE = tables.from_rows(
    PresenceRow, [PresenceRow(f"run {run}", 0, f"n{node}") for run in range(3) for node in range(7)]
)
QUERIES = {
    "sums": "SELECT run, src, cast(sum(size) as bigint) AS bytes, count(*) AS cells FROM {cells} GROUP BY run, src",
    "rounded times": "SELECT run, t_us - t_us % 1000000 AS second, count(*) AS cells FROM {cells} GROUP BY run, second",
    "gaps": "SELECT run, src, t_us - lag(t_us) OVER (PARTITION BY run, src, dst ORDER BY t_us) AS gap FROM {cells}",
    "ends": "SELECT DISTINCT run, least(src, dst) AS u, greatest(src, dst) AS v FROM {cells} WHERE src <> dst",
    "first": "SELECT run, min_by(src, t_us) AS src, min(t_us) AS t_us FROM {cells} GROUP BY run",
    "joins": "SELECT c.run, node, size FROM {cells} AS c JOIN {presence} AS p ON c.run = p.run AND src = node",
    "sets": "SELECT run, src, size, cast(grouping(src) as bigint) AS whole, count(*) AS cells FROM {cells} "
    "GROUP BY GROUPING SETS ((run, src), (run, size))",
}


def sorted_rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*table.to_pydict().values(), strict=True), key=repr)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_both_engines_give_the_same_rows_and_types(spark: SparkSession, query: str) -> None:
    inputs = {name: table for name, table in (("cells", CELLS), ("presence", PRESENCE)) if f"{{{name}}}" in query}
    here = ArrowEngine().query(query, **inputs)
    frames = {name: spark.createDataFrame(table) for name, table in inputs.items()}
    there = SparkEngine(spark).query(query, **frames).toArrow()
    assert here.num_rows
    assert sorted_rows(here) == sorted_rows(there)
    assert here.schema.types == there.schema.types


def test_both_engines_apply_a_function_to_all_rows_of_a_run_at_once(spark: SparkSession) -> None:
    def count(rows: pa.Table) -> pa.Table:
        run = GroupedRun(rows)
        cells, there = run.table("cells"), run.table("there")
        assert set(run.node_numbers(cells["u"]).tolist()) <= set(range(len(run.names)))
        row = PresenceRow(run.run, len(cells), f"{len(there)} of {len(run.names)}")
        return tables.from_rows(PresenceRow, [row])

    found = []
    for cells, presence in (
        (CELLS, PRESENCE),
        (spark.createDataFrame(CELLS).repartition(4), spark.createDataFrame(PRESENCE)),
    ):
        united = union_tables(
            [
                RunTable("cells", cells, {"at": "t_us", "u": "src", "v": "dst"}),
                RunTable("there", presence, {"u": "node"}),
            ]
        )
        guessed = engine_of(united).apply_by(united, ["run"], count, PresenceRow)
        found.append(sorted_rows(guessed if isinstance(guessed, pa.Table) else guessed.toArrow()))
    assert found[0] == found[1] == [(f"run {run}", 40, "7 of 7") for run in range(3)]


def test_groups_by_several_keys_are_whole_and_complete() -> None:
    sizes: list[int] = []

    def note(rows: pa.Table) -> pa.Table:
        assert len(np.unique(rows["src"].to_numpy(zero_copy_only=False))) == 1
        sizes.append(len(rows))
        return tables.arrow_schema(PresenceRow).empty_table()

    ArrowEngine().apply_by(CELLS, ["run", "src"], note, PresenceRow)
    assert (len(sizes), sum(sizes)) == (15, len(CELLS))


def test_a_table_without_rows_has_no_groups_and_keeps_its_columns() -> None:
    def fail(rows: pa.Table) -> pa.Table:
        raise AssertionError

    found = ArrowEngine().apply_by(CELLS.slice(0, 0), ["run"], fail, PresenceRow)
    assert found.schema == tables.arrow_schema(PresenceRow)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_gives_the_same_rows_from_files_as_from_memory(tmp_path: Path, query: str) -> None:
    half = len(CELLS) // 2
    paths = [str(tmp_path / f"it's {{odd}} {part}.parquet") for part in (0, 1)]
    pq.write_table(CELLS.slice(0, half), paths[0])
    pq.write_table(CELLS.slice(half), paths[1])
    engine = ArrowEngine()
    stored = engine.query(query, cells=scan_files(paths, CELLS.column_names), presence=PRESENCE)
    kept = engine.query(query, cells=CELLS, presence=PRESENCE)
    order = [(name, "ascending") for name in kept.column_names]
    assert stored.sort_by(order).equals(kept.sort_by(order))


def test_a_scan_gives_the_runs_that_are_asked_for_and_no_others(tmp_path: Path) -> None:
    path = str(tmp_path / "cells.parquet")
    pq.write_table(CELLS, path)
    scan = scan_files([path], CELLS.column_names, ["run 0", "run 2", "it's none"])
    found = ArrowEngine().query("SELECT DISTINCT run FROM {cells} ORDER BY run", cells=scan)
    assert found["run"].to_pylist() == ["run 0", "run 2"]


def test_a_view_of_a_view_reads_all_its_inputs() -> None:
    engine = ArrowEngine()
    nodes = engine.view("SELECT run, node FROM {presence}", presence=PRESENCE)
    sent = engine.view(
        "SELECT n.run, n.node, c.size FROM {nodes} AS n JOIN {cells} AS c ON n.run = c.run AND n.node = c.src",
        nodes=nodes,
        cells=CELLS,
    )
    twice = engine.query("SELECT * FROM {sent} UNION ALL SELECT * FROM {sent}", sent=sent)
    assert len(twice) == 2 * len(CELLS)


def test_relations_and_arrow_tables_are_united_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "cells.parquet")
    pq.write_table(CELLS, path)
    columns = {"at": "t_us - t_us % 1000", "u": "src", "v": "dst", "share": "cast(size as double)"}
    stored, kept = (
        union_tables([RunTable("cells", table, columns)]) for table in (scan_files([path], CELLS.column_names), CELLS)
    )
    assert isinstance(stored, TablesByKind)
    assert isinstance(kept, TablesByKind)
    order = [(name, "ascending") for name in ("run", "at", "u", "v")]
    assert stored.parts["cells"].sort_by(order).equals(kept.parts["cells"].sort_by(order))


def test_views_of_queries_are_few_and_frames_in_use_keep_their_persisted_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_engine, "VIEWS_MAX", 3)
    monkeypatch.setattr(table_engine, "_VIEWS", {})
    engine = SparkEngine(spark)
    before = len(spark.catalog.listTables())
    kept = spark.createDataFrame(CELLS).persist()
    count = "SELECT count(*) AS rows FROM {kept}"
    assert engine.query(count, kept=kept).toArrow()["rows"].to_pylist() == [len(CELLS)]
    assert engine.query(count, kept=kept).toArrow()["rows"].to_pylist() == [len(CELLS)]
    assert len(spark.catalog.listTables()) == before + 1
    for _ in range(2):
        engine.query(count, kept=spark.createDataFrame(CELLS))
    assert kept.storageLevel.useMemory
    for _ in range(5):
        engine.query(count, kept=spark.createDataFrame(CELLS))
    assert len(spark.catalog.listTables()) == before + 3
    assert engine.query(count, kept=kept).toArrow()["rows"].to_pylist() == [len(CELLS)]
    kept.unpersist()
