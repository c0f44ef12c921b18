"""A store goes on only with what was made alike and is whole; it forgets what a killed sweep left."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from veilcast.authority.secret_file import replace_file
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment import store
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import Environment, SweepManifest, read_manifest
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.tables import MeasureRow, RunRow

PORTION = SeedPortion(0, 19)
FILE = "measures/experiment=two/bucket=0/seeds-000000-000019.parquet"


@pytest.fixture
def manifest(two_cells: Experiment) -> SweepManifest:
    return SweepManifest(
        experiment="two",
        definition=msgspec.to_builtins(two_cells),
        engine="kernel",
        quick=False,
        data="/here",
        data_sha256={"edges.csv": "00"},
        fingerprint="aaaa",
        commit="",
        changed=False,
        means=Environment("local[2]", 2, {"numba": "1"}),
        command="",
    )


def measures(value: float = 1.0) -> pa.Table:
    return tables.from_rows(
        MeasureRow, [MeasureRow("two", "mu=0.5", seed, "", "overlay", 0.0, value) for seed in range(20)]
    )


def with_one_portion(out: Path, manifest: SweepManifest) -> SweepManifest:
    with store.open_store(out, "two") as opened:
        begun = opened.begin(manifest, fresh=False)
        return opened.add(begun, PORTION, tables.from_rows(RunRow, []), measures(), 1.5)


def begin(out: Path, manifest: SweepManifest, *, fresh: bool = False) -> SweepManifest:
    with store.open_store(out, "two") as opened:
        return opened.begin(manifest, fresh=fresh)


def test_what_was_stored_is_there(tmp_path: Path, manifest: SweepManifest) -> None:
    stored = with_one_portion(tmp_path, manifest)
    again = begin(tmp_path, manifest)
    assert again.stored == stored.stored
    assert (again.portions(), again.wall_s) == ([PORTION], 1.5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fingerprint": "bbbb"}, r"made by other code \(aaaa; this is bbbb\)"),
        ({"engine": "machines"}, "with engine kernel, not machines"),
        ({"quick": True}, "with quick False, not True"),
        ({"means": Environment("local[2]", 2, {"numba": "2"})}, "with numba 1, not 2"),
        ({"data_sha256": {"edges.csv": "01"}}, "from another edges.csv"),
        ({"data_sha256": {}}, "from another edges.csv"),
        ({"axes": {"mu": [0.25, 0.75]}}, "with other parameters"),
    ],
)
def test_what_was_made_otherwise_is_not_mixed(
    change: dict[str, object], named: str, tmp_path: Path, manifest: SweepManifest
) -> None:
    with_one_portion(tmp_path, manifest)
    if "axes" in change:
        change = {"definition": {**manifest.definition, **change, "figures": [], "published": []}}
    other = msgspec.structs.replace(manifest, **change)
    with pytest.raises(StorageError, match=named) as told:
        begin(tmp_path, other)
    assert "--fresh" in str(told.value)
    assert (tmp_path / FILE).exists()
    assert begin(tmp_path, other, fresh=True).stored == ()
    assert not (tmp_path / FILE).exists()


def test_each_portion_keeps_what_it_was_made_on(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    means = Environment("spark://host:7077", 64, {"numba": "1"})
    moved = msgspec.structs.replace(manifest, means=means, data="/moved")
    with store.open_store(tmp_path, "two") as opened:
        again = opened.begin(moved, fresh=False)
        again = opened.add(again, SeedPortion(20, 39), tables.from_rows(RunRow, []), measures(), 2.0)
    assert [(stored.means, stored.wall_s) for stored in again.stored] == [(manifest.means, 1.5), (means, 2.0)]
    assert (again.means, again.wall_s, again.data) == (means, 3.5, "/moved")


def test_what_only_draws_may_change(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    redrawn = msgspec.structs.replace(manifest, definition={**manifest.definition, "title": "Another"})
    assert begin(tmp_path, redrawn).portions() == [PORTION]


def test_a_file_that_was_changed_or_removed_is_noticed(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    tables.write(tmp_path / FILE, measures(2.0))
    with pytest.raises(TamperedError, match="is not what was stored there"):
        begin(tmp_path, manifest)
    tables.write(tmp_path / FILE, measures())
    runs = FILE.replace("measures", "runs")
    tables.write(tmp_path / runs, tables.from_rows(RunRow, [RunRow("r", "two", "mu=0.5", "{}", 0, "")]))
    with pytest.raises(TamperedError, match=r"runs/.* is not what was stored there; --fresh"):
        begin(tmp_path, manifest)
    tables.write(tmp_path / runs, tables.from_rows(RunRow, []))
    tables.write(tmp_path / FILE, measures().drop_columns(["metric"]))
    with pytest.raises(TamperedError, match="no column metric"):
        begin(tmp_path, manifest)
    (tmp_path / FILE).unlink()
    with pytest.raises(TamperedError, match="is gone"):
        begin(tmp_path, manifest)


def test_what_a_killed_sweep_left_is_removed_and_nothing_else(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    bucket = tmp_path / "measures/experiment=two/bucket=1"
    bucket.mkdir()
    for name in ("seeds-000020-000024.parquet", ".seeds-000020-000024.parquet.77.new", "mine.parquet"):
        (bucket / name).write_bytes(b"")
    begin(tmp_path, manifest)
    assert [path.name for path in bucket.iterdir()] == ["mine.parquet"]
    assert (tmp_path / FILE).exists()


def test_tables_without_a_manifest_are_nothing(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    store.manifest_path(tmp_path, "two").unlink()
    assert begin(tmp_path, manifest).stored == ()
    assert not (tmp_path / FILE).exists()


def test_a_manifest_that_is_none_is_refused(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    undefined = msgspec.json.encode(msgspec.structs.replace(manifest, definition={"title": "Two"}))
    for content in (b'{"status": "complete"}', undefined):
        store.manifest_path(tmp_path, "two").write_bytes(content)
        with pytest.raises(TamperedError, match="is no manifest of ours"):
            begin(tmp_path, manifest)
    assert begin(tmp_path, manifest, fresh=True).stored == ()


def test_a_second_sweep_of_the_same_is_told_of_the_first(tmp_path: Path, manifest: SweepManifest) -> None:
    with store.open_store(tmp_path, "two"):
        with pytest.raises(StorageError, match="another sweep is writing two"), store.open_store(tmp_path, "two"):
            pass
        with store.open_store(tmp_path, "three"):
            pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot work in"), store.open_store(tmp_path / "file", "two"):
        pass


def test_each_portion_is_listed_once_in_a_file_of_its_own(tmp_path: Path, manifest: SweepManifest) -> None:
    with_one_portion(tmp_path, manifest)
    entry = tmp_path / "manifests/two/seeds-000000-000019.json"
    before = (entry.read_bytes(), entry.stat().st_ino)
    head = store.manifest_path(tmp_path, "two").stat()
    with store.open_store(tmp_path, "two") as opened:
        begun = opened.begin(manifest, fresh=False)
        head = store.manifest_path(tmp_path, "two").stat()
        opened.add(begun, SeedPortion(20, 39), tables.from_rows(RunRow, []), measures(), 2.0)
    assert (entry.read_bytes(), entry.stat().st_ino) == before
    assert store.manifest_path(tmp_path, "two").stat() == head
    assert read_manifest(store.manifest_path(tmp_path, "two")).wall_s == 3.5
    entry.write_bytes(b"{}")
    with pytest.raises(TamperedError, match="is no portion of a manifest of ours"):
        begin(tmp_path, manifest)
    assert begin(tmp_path, manifest, fresh=True).stored == ()
    assert not entry.exists()


def test_a_result_from_before_with_all_portions_in_one_file_is_continued(
    tmp_path: Path, manifest: SweepManifest
) -> None:
    with_one_portion(tmp_path, manifest)
    path = store.manifest_path(tmp_path, "two")
    stored = read_manifest(path)
    (tmp_path / "manifests/two/seeds-000000-000019.json").unlink()
    path.write_bytes(msgspec.json.encode(stored))
    assert read_manifest(path) == stored
    assert begin(tmp_path, manifest).stored == stored.stored
    assert read_manifest(path) == stored
    assert b'"portion"' not in path.read_bytes()


@pytest.mark.parametrize("at", range(4))
def test_a_kill_at_any_write_of_a_portion_loses_nothing_stored(
    at: int, tmp_path: Path, manifest: SweepManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = with_one_portion(tmp_path, manifest)
    writes = 0

    class Killed(BaseException):
        pass

    def counted(write: Any) -> Any:
        def attempt(*given: Any, **options: Any) -> None:
            nonlocal writes
            if writes == at:
                raise Killed
            writes += 1
            write(*given, **options)

        return attempt

    with store.open_store(tmp_path, "two") as opened:
        begun = opened.begin(manifest, fresh=False)
        monkeypatch.setattr(tables, "write", counted(tables.write))
        monkeypatch.setattr("veilcast.lab.experiment.store.replace_file", counted(replace_file))
        with contextlib.suppress(Killed):
            opened.add(begun, SeedPortion(20, 39), tables.from_rows(RunRow, []), measures(), 2.0)
        monkeypatch.undo()
    again = begin(tmp_path, manifest)
    assert again.stored[:1] == stored.stored
    assert len(again.stored) == (2 if at == 3 else 1)
    listed = 2 * len(again.stored)
    assert len(list(tmp_path.rglob("seeds-*.parquet"))) == listed
