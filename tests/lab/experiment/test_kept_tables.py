"""Kept tables: the same bytes wherever runs are made, complete after a kill, and with their origin in every file."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from support.stored_results import files_of
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import kept_tables, sweep
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.params import Measure, RunFunction
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.runs.table import ENGINES
from veilcast.lab.spark.locations import address_of
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import MeasureRow

pytestmark = pytest.mark.usefixtures("small_buckets")
KEEP = ("cells", "truth")


def do(
    spark: SparkSession | None,
    experiment: Experiment,
    out: Path,
    keep: tuple[str, ...] = KEEP,
    runner: RunFunction = ENGINES["kernel"],
    **options: Any,
) -> sweep.SweepResult:
    return sweep.run_sweep(
        spark, "two", experiment, LocalDirectory(out), engine="kernel", runner=runner, keep=keep, **options
    )


def contents(out: Path, result: sweep.SweepResult) -> dict[str, bytes]:
    """Every listed file of a kept table, and all other tables, byte for byte; the part of a name that is an attempt's
    is left out."""
    listed = [out / file.path for stored in result.manifest.stored for file in stored.kept]
    others = [path for row in (MeasureRow, tables.ScoreRow) for path in files_of(out, row, "two")]
    return {re.sub(r"\.[0-9a-f]{8}\.", ".", str(path.relative_to(out))): path.read_bytes() for path in listed + others}


@pytest.fixture(scope="module")
def here(two_cells: Experiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sweep.SweepResult]:
    """A sweep in this process."""
    out = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("veilcast.lab.experiment.plan.BUCKET_SEEDS", 2)
        return out, do(None, two_cells, out)


def test_spark_writes_the_same_bytes(
    spark: SparkSession, two_cells: Experiment, here: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    found = contents(tmp_path, do(spark, two_cells, tmp_path))
    assert found == contents(*here)
    assert sum(name.startswith("cells/") for name in found) == 8  # Two portions of two cells, and two files of each.


def test_a_worker_that_is_killed_in_a_run_leaves_nothing_that_counts(
    spark: SparkSession, two_cells: Experiment, here: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    marker = str(tmp_path / "killed")

    def run(params: Any, seed: int, data: Path | None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
        from veilcast.lab.runs.table import run_by

        found = run_by("kernel", params, seed, data, recorder)
        if seed == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    out = tmp_path / "out"
    result = do(spark, two_cells, out, runner=run)
    assert os.path.exists(marker)
    assert contents(out, result) == contents(*here)
    listed = {file.path for stored in result.manifest.stored for file in stored.kept}
    left = {str(path.relative_to(out)) for path in (out / "cells").rglob("*.parquet")} - listed
    assert left
    do(None, two_cells, out, runner=run)
    assert {str(path.relative_to(out)) for name in KEEP for path in (out / name).rglob("*.parquet")} == listed


def test_a_table_is_read_again_with_the_rows_of_each_run(
    spark: SparkSession, two_cells: Experiment, here: tuple[Path, sweep.SweepResult]
) -> None:
    out, result = here
    cells = kept_tables.read_kept(LocalDirectory(out), result.manifest, "cells")
    assert sorted(
        kept_tables.kept_frame(spark, LocalDirectory(out), result.manifest, "cells").toArrow().to_pylist(), key=str
    ) == (sorted(cells.to_pylist(), key=str))
    for cell in two_cells.make_cells():
        for seed in range(4):
            parts: list[pa.Table] = []
            name = kept_tables.run_name(cell.name, seed)
            ENGINES["kernel"](cell.params, seed, None, TableRecorder(name, {"cells": parts.append}))  # type: ignore[call-arg]
            assert cells.filter(pc.equal(cells["run"], name)).to_pylist() == pa.concat_tables(parts).to_pylist()


def test_every_file_says_where_its_rows_come_from(here: tuple[Path, sweep.SweepResult]) -> None:
    out, result = here
    file = [file for file in result.manifest.stored[1].kept if file.table == "truth"][1]
    lineage = kept_tables.read_lineage(LocalDirectory(out), file.path)
    assert (lineage["experiment"], lineage["cell"], lineage["seeds"]) == ("two", "mu=0.25", [3])
    assert lineage["runs"] == ["mu=0.25 seed=3"]
    assert lineage["fingerprint"] == result.manifest.fingerprint
    assert '"mu":0.25' in lineage["params"]
    with pytest.raises(TamperedError, match="does not say from which runs"):
        kept_tables.read_lineage(LocalDirectory(out), result.manifest.stored[0].measures.path)


def test_measures_do_not_depend_on_what_is_kept(
    two_cells: Experiment, here: tuple[Path, sweep.SweepResult], tmp_path: Path
) -> None:
    plain = contents(tmp_path, do(None, two_cells, tmp_path, keep=()))
    assert plain == {name: data for name, data in contents(*here).items() if name in plain}


def test_a_result_without_the_tables_is_not_continued_with_them(two_cells: Experiment, tmp_path: Path) -> None:
    do(None, two_cells, tmp_path, keep=("truth",), seeds=2)
    with pytest.raises(StorageError, match="holds two made without --keep cells; choose another --out; --fresh"):
        do(None, two_cells, tmp_path)
    again = do(None, two_cells, tmp_path, keep=())
    assert all({file.table for file in stored.kept} == {"truth"} for stored in again.manifest.stored)
    with pytest.raises(StorageError, match="has no cells of two: it kept truth"):
        kept_tables.read_kept(LocalDirectory(tmp_path), again.manifest, "cells")
    fresh = do(None, two_cells, tmp_path, keep=(), fresh=True)
    assert not list((tmp_path / "truth").rglob("*.parquet"))
    with pytest.raises(StorageError, match="it kept no tables"):
        kept_tables.read_kept(LocalDirectory(tmp_path), fresh.manifest, "truth")


def test_a_kept_file_that_was_cut_or_removed_is_noticed(two_cells: Experiment, tmp_path: Path) -> None:
    result = do(None, two_cells, tmp_path)
    path = tmp_path / result.manifest.stored[0].kept[0].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TamperedError, match="is not what was stored there"):
        do(None, two_cells, tmp_path)
    path.unlink()
    with pytest.raises(TamperedError, match="is gone"):
        do(None, two_cells, tmp_path)


def test_a_directory_that_is_not_shared_is_told(
    two_cells: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = kept_tables.KeptWriter.finish

    def elsewhere(writer: kept_tables.KeptWriter) -> list[kept_tables.KeptFile]:
        found = finish(writer)
        (tmp_path / found[0].path).unlink()
        return found

    monkeypatch.setattr(kept_tables.KeptWriter, "finish", elsewhere)
    with pytest.raises(StorageError, match="where this machine does not see it; with --keep, --out must be"):
        do(None, two_cells, tmp_path)


def test_large_tables_are_written_in_row_groups_whatever_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tables, "_GROUP_ROWS", 10)
    found = []
    for number, parts in enumerate(([25], [10, 10, 5])):
        root = tmp_path / str(number)
        writer = kept_tables.KeptWriter(
            kept_tables.KeptOutput(address_of(LocalDirectory(root)), "e", ("topology",), {}), 0, "all", b"{}", [0]
        )
        recorder = writer.record_run("r")
        at = 0
        for rows in parts:
            names = [f"n{node:02}" for node in range(at, at + rows)]
            recorder.record("topology", epoch=0, u=names, v=names)
            at += rows
        (file,) = writer.finish()
        assert file.rows == 25
        found.append((root / file.path).read_bytes())
    assert found[0] == found[1]


def test_a_runner_without_tables_is_refused_by_the_command_before_anything_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from veilcast.cli.main import main

    for keep, told in (("cells", "runs of kind mesh.grinding by machines do not give it"), ("sells", "no such table")):
        assert main(["lab", "run", "mesh-grinding", "--keep", keep, "--out", str(tmp_path / "out")]) == 3
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
