"""A sweep, on Spark: whole, ended half-way and gone on with, with workers that die and engines that fail."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.stored_results import read_table, tables_in
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment import plan, sweep, workplace
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import read_manifest
from veilcast.lab.experiment.params import Measure, RunFunction
from veilcast.lab.spark import SparkLater
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import MeasureRow, ScoreRow, VerdictRow

pytestmark = pytest.mark.usefixtures("small_buckets")


def engine(before: Callable[[int], object] = lambda seed: None) -> RunFunction:
    """A run in a line. `before` is called in the executor first. Made here, so that executors get it by value."""

    def run(params: Any, seed: int, data: Path | None) -> list[Measure]:
        before(seed)
        return [Measure("leaf", "accuracy_all", 1.0, seed / 7), Measure("", "overlay", 0.0, 100 * params.mu + seed % 3)]

    return run


def do(
    spark: SparkSession | SparkLater | None,
    experiment: Experiment,
    out: Path,
    runner: RunFunction | None = None,
    **options: Any,
) -> Any:
    return sweep.run_sweep(
        spark, "two", experiment, LocalDirectory(out), engine="kernel", runner=runner or engine(), **options
    )


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted sweep, for comparison; made by the first test that wants it."""
    return tmp_path_factory.mktemp("whole")


def whole_tables(spark: SparkSession, experiment: Experiment, out: Path) -> dict[str, bytes]:
    if not tables_in(out):
        do(spark, experiment, out)
    return tables_in(out)


def test_a_sweep_gives_tables_scores_verdicts_and_a_manifest(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path
) -> None:
    out = tmp_path / "a [strange] {place}*"
    result = do(spark, two_cells, out, command="veilcast lab run two")
    assert result.runs == 8
    rows = read_table(out, MeasureRow, "two").to_pylist()
    assert [(row["cell"], row["seed"], row["attack"]) for row in rows[:4]] == [
        ("mu=0.25", 0, ""),
        ("mu=0.25", 0, "leaf"),
        ("mu=0.25", 1, ""),
        ("mu=0.25", 1, "leaf"),
    ]
    scores = {(row["cell"], row["metric"]): row for row in read_table(out, ScoreRow, "two").to_pylist()}
    assert scores["mu=0.5", "overlay"]["value"] == pytest.approx(50.75)
    assert scores["mu=0.5", "overlay"]["seeds"] == 4
    (verdict,) = read_table(out, VerdictRow, "two").to_pylist()
    assert verdict["verdict"] == "fits"
    manifest = result.manifest
    assert (manifest.status, manifest.seeds, manifest.command) == ("complete", 4, "veilcast lab run two")
    assert len(manifest.stored) == 2
    for stored in manifest.stored:
        assert (stored.means, stored.rows) == (manifest.means, 8)
    assert {"python", "java", "pyspark", "numba", "numpy"} <= set(manifest.means.versions)


def test_more_seeds_add_to_what_is_there_and_fewer_take_nothing_away(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, whole: Path
) -> None:
    assert do(spark, two_cells, tmp_path, seeds=2).runs == 4
    assert do(spark, two_cells, tmp_path, seeds=4).runs == 4
    assert tables_in(tmp_path) == whole_tables(spark, two_cells, whole)
    again = do(spark, two_cells, tmp_path, seeds=1)
    assert (again.runs, again.manifest.seeds) == (0, 4)


def test_into_which_jobs_portions_go_shows_nowhere(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    measure = sweep._measure

    def counted(*given: Any) -> Any:
        jobs.append(len(given[2].portions))
        return measure(*given)

    monkeypatch.setattr(sweep, "_measure", counted)
    do(spark, two_cells, tmp_path / "together", seeds=6)
    assert jobs == [1, 2]
    monkeypatch.setattr(plan, "_JOB_S", 0.0)
    do(spark, two_cells, tmp_path / "apart", seeds=6)
    assert jobs == [1, 2, 1, 1, 1]
    assert tables_in(tmp_path / "together") == tables_in(tmp_path / "apart")


def test_work_in_this_process_gives_the_same_bytes_without_java(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkLater, "begin", lambda _: pytest.fail("Java is started"))
    result = do(SparkLater(), two_cells, tmp_path / "short")
    assert (result.runs, result.manifest.means.master) == (8, "")
    assert tables_in(tmp_path / "short") == whole_tables(spark, two_cells, whole)


class Ready(SparkLater):
    """Is ready a while after it began, and gives a session that exists."""

    def __init__(self, spark: SparkSession, after: int) -> None:
        super().__init__()
        self.given, self.after, self.began = spark, after, 0

    def begin(self) -> None:
        self.began += 1

    @property
    def is_ready(self) -> bool:
        return self.began > self.after

    def get(self) -> SparkSession:
        self.session = self.given
        return self.given


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 7, 8])
def test_a_sweep_that_moves_to_spark_gives_the_same_bytes(
    after: int,
    spark: SparkSession,
    two_cells: Experiment,
    tmp_path: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workplace, "HERE_S", 0.0)
    later = Ready(spark, after)
    result = do(later, two_cells, tmp_path)
    assert (later.session is spark) == (after < 7)
    assert [bool(stored.means.master) for stored in result.manifest.stored] == [after < 3, after < 7]
    assert tables_in(tmp_path) == whole_tables(spark, two_cells, whole)


@pytest.mark.parametrize("rows", [0, 5, 10**9])
def test_wherever_scores_are_made_they_are_the_same(
    rows: int,
    spark: SparkSession,
    two_cells: Experiment,
    tmp_path: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "_ROWS_HERE", rows)
    for place, out in ((spark, tmp_path / "spark"), (None, tmp_path / "here")):
        do(place, two_cells, out)
        assert tables_in(out) == whole_tables(spark, two_cells, whole)


def test_a_sweep_that_failed_half_way_goes_on_where_it_was(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, whole: Path
) -> None:
    def fail_late(seed: int) -> None:
        if seed >= 2:
            raise ConfigError("the data folder lacks edges.csv")

    def fail_early(seed: int) -> None:
        if seed < 2:
            raise ValueError("it is there already")

    with pytest.raises(ConfigError, match=r"^the data folder lacks edges\.csv$"):
        do(spark, two_cells, tmp_path, engine(fail_late))
    assert len(read_manifest(LocalDirectory(tmp_path), "two").stored) == 1
    assert do(spark, two_cells, tmp_path, engine(fail_early)).runs == 4
    assert tables_in(tmp_path) == whole_tables(spark, two_cells, whole)


def test_a_worker_that_is_killed_is_replaced(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, whole: Path
) -> None:
    marker = str(tmp_path / "killed")

    def die_once(seed: int) -> None:
        if seed == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    do(spark, two_cells, tmp_path / "out", engine(die_once))
    assert os.path.exists(marker)
    assert tables_in(tmp_path / "out") == whole_tables(spark, two_cells, whole)


def test_a_full_disk_stops_it_and_spoils_nothing(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = LocalDirectory.open_new

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise StorageError("No space left")

    def full(self: LocalDirectory, name: str) -> Any:
        file = opened(self, name)
        if "measures" in name and "bucket=1" in name:
            file.write(b"PAR1")
            file.close()
            return Full()
        return file

    with monkeypatch.context() as planted:
        planted.setattr(LocalDirectory, "open_new", full)
        with pytest.raises(StorageError, match="No space left"):
            do(spark, two_cells, tmp_path)
    assert do(spark, two_cells, tmp_path).runs == 4
    assert tables_in(tmp_path) == whole_tables(spark, two_cells, whole)


def test_what_was_done_while_the_code_changed_is_not_kept(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "code_fingerprint", lambda: "another")
    with pytest.raises(StorageError, match="was changed while two was swept"):
        do(spark, two_cells, tmp_path)
    assert read_manifest(LocalDirectory(tmp_path), "two").stored == ()


def test_a_data_folder_that_is_not_read_does_not_count(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path
) -> None:
    do(spark, two_cells, tmp_path / "out", seeds=2)
    assert do(spark, two_cells, tmp_path / "out", seeds=2, data=tmp_path).runs == 0


def test_an_engine_that_an_experiment_is_not_for_is_refused(
    spark: SparkSession, two_cells: Experiment, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="two runs on kernel and machines only"):
        sweep.run_sweep(spark, "two", two_cells, LocalDirectory(tmp_path), engine="other", runner=engine())
