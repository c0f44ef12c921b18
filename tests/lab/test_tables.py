"""A table is what its row type says; a file of another one is refused by the name of the column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.stored_results import read_table
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import MeasureRow, VerdictRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURED = [MeasureRow("e", "mu=0.1", seed, "leaf", "accuracy_all", 0.0, seed / 7) for seed in range(50)]
FILE = f"{tables.place(MeasureRow, 'e')}/a.parquet"
VERDICT = VerdictRow("e", "kernel", "check", "w", "", "f", "c", None, "value", 1, 3, 4, 5, 6, 7, "fits", "fits", "")


@pytest.mark.parametrize("rows", [MEASURED, [VERDICT], []])
def test_a_written_table_is_read_back(rows: list[Any], tmp_path: Path) -> None:
    kind = type(rows[0]) if rows else MeasureRow
    table = tables.from_rows(kind, rows)
    tables.write(LocalDirectory(tmp_path), f"{tables.place(kind, 'e', 3)}/some.parquet", table)
    assert [kind(**row) for row in read_table(tmp_path, kind, "e").to_pylist()] == rows
    assert read_table(tmp_path, kind, "other").num_rows == 0


def test_files_of_several_buckets_are_one_table_and_others_tools_find_the_experiment(tmp_path: Path) -> None:
    for bucket, rows in enumerate((MEASURED[:20], MEASURED[20:])):
        file = f"{tables.place(MeasureRow, 'e', bucket)}/a.parquet"
        tables.write(LocalDirectory(tmp_path), file, tables.from_rows(MeasureRow, rows))
    assert read_table(tmp_path, MeasureRow, "e").equals(tables.from_rows(MeasureRow, MEASURED))
    plain = pq.read_table(tmp_path / "measures").to_pylist()
    assert {row["experiment"] for row in plain} == {"e"}


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tables.write(LocalDirectory(tmp_path), name, tables.from_rows(MeasureRow, MEASURED))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda table: table.drop_columns(["metric"]), "no column metric"),
        (lambda table: table.append_column("extra", pa.nulls(len(table))), "a column extra"),
        (lambda table: table.set_column(1, "seed", table["seed"].cast(pa.string())), "column seed holds string"),
        (lambda table: table.set_column(5, "value", table["value"].cast(pa.float32())), "column value holds float"),
        (
            lambda table: table.set_column(5, "value", pa.nulls(50, pa.float64())),
            "column value has rows without a value",
        ),
    ],
)
def test_a_file_of_another_schema_is_refused_by_its_column(change: Any, named: str, tmp_path: Path) -> None:
    stored = tables.from_rows(MeasureRow, MEASURED).drop_columns(["experiment"])
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    pq.write_table(change(stored), path)
    with pytest.raises(TamperedError, match=named):
        read_table(tmp_path, MeasureRow, "e")


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    tables.write(LocalDirectory(tmp_path), FILE, tables.from_rows(MeasureRow, MEASURED))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TamperedError, match="no whole Parquet file"):
        read_table(tmp_path, MeasureRow, "e")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    tables.write(LocalDirectory(tmp_path), FILE, tables.from_rows(MeasureRow, MEASURED))
    with pytest.raises(StorageError, match=r"cannot write .*: File exists"):
        tables.write(LocalDirectory(tmp_path), FILE, tables.from_rows(MeasureRow, MEASURED[:3]))
    assert read_table(tmp_path, MeasureRow, "e").equals(tables.from_rows(MeasureRow, MEASURED))


def test_every_table_has_a_schema_for_arrow_and_for_spark() -> None:
    for name, row in tables.TABLES.items():
        spark, arrow = tables.spark_schema(row), tables.arrow_schema(row)
        assert spark.fieldNames() == arrow.names, name
        assert [field.nullable for field in spark] == [field.nullable for field in arrow]
    assert tables.arrow_schema(VerdictRow).field("x").nullable
    assert "experiment" not in tables.arrow_schema(MeasureRow, stored=True).names


@pytest.mark.parametrize("sizes", [(20, 0, 30), (0, 20, 0, 0, 30), (20, 30, 0), (50,), (0,), ()])
@pytest.mark.parametrize("row", [None, MeasureRow])
def test_a_frame_has_all_rows_of_a_table_with_empty_parts(
    sizes: tuple[int, ...], row: type[MeasureRow] | None, spark: SparkSession
) -> None:
    whole = tables.from_rows(MeasureRow, MEASURED[: sum(sizes)])
    parts = [whole.slice(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
    cut = pa.concat_tables(parts) if parts else whole
    found = tables.make_frame(spark, cut, row).toArrow().sort_by("seed")
    assert found.to_pylist() == whole.to_pylist()


def test_arrow_tables_become_frames_in_one_place() -> None:
    """Spark's own way loses rows behind an empty part."""
    root = Path(__file__).parents[2]
    callers = {
        path.relative_to(root).as_posix(): len(found)
        for folder in ("src", "benchmarks", "examples")
        for path in sorted((root / folder).rglob("*.py"))
        if (found := re.findall(r"createDataFrame\b", path.read_text()))
    }
    # One without rows, and two of `make_frame`.
    assert callers == {"src/veilcast/lab/tables.py": 3}
