"""A store continues only what was made alike and is whole; it removes what a killed sweep left."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from support.stored_results import files_of
from veilcast.errors import StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.manifest import (
    Environment,
    SweepBegun,
    SweepManifest,
    encode_entry,
    list_manifests,
    manifest_log,
    read_manifest,
)
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.experiment.store import NewPortion, ResultStore
from veilcast.lab.storage.location import LocalDirectory, Location
from veilcast.lab.tables import MeasureRow, ScoreRow, VerdictRow

PORTION, NEXT = SeedPortion(0, 19), SeedPortion(20, 39)
LOG = "manifests/two"


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


@pytest.fixture
def out(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path)


def measures(value: float = 1.0) -> pa.Table:
    return tables.from_rows(
        MeasureRow, [MeasureRow("two", "mu=0.5", seed, "", "overlay", 0.0, value) for seed in range(20)]
    )


def begin(out: Location, manifest: SweepManifest, *, fresh: bool = False) -> SweepManifest:
    return ResultStore(out, "two").begin(manifest, fresh=fresh)


def with_one_portion(out: Location, manifest: SweepManifest) -> SweepManifest:
    store = ResultStore(out, "two")
    return store.add(store.begin(manifest, fresh=False), [NewPortion(PORTION, measures(), 1.5)])


def finish(store: ResultStore, manifest: SweepManifest) -> SweepManifest:
    return store.finish(manifest, tables.from_rows(ScoreRow, []), tables.from_rows(VerdictRow, []), 1.0)


def test_what_was_stored_is_there(out: LocalDirectory, manifest: SweepManifest) -> None:
    stored = with_one_portion(out, manifest)
    again = begin(out, manifest)
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
def test_results_that_were_made_otherwise_are_not_mixed(
    change: dict[str, object], named: str, out: LocalDirectory, manifest: SweepManifest
) -> None:
    with_one_portion(out, manifest)
    if "axes" in change:
        change = {
            "definition": {**manifest.definition, **change, "figures": [], "published": [], "earlier": [], "checks": []}
        }
    other = msgspec.structs.replace(manifest, **change)
    with pytest.raises(StorageError, match=named) as caught:
        begin(out, other)
    assert "--fresh" in str(caught.value)
    assert len(files_of(out.root, MeasureRow, "two")) == 1
    assert begin(out, other, fresh=True).stored == ()
    assert files_of(out.root, MeasureRow, "two") == []
    assert manifest_log(out, "two").numbers() == [2]


def test_each_portion_keeps_the_environment_that_made_it(out: LocalDirectory, manifest: SweepManifest) -> None:
    with_one_portion(out, manifest)
    means = Environment("spark://host:7077", 64, {"numba": "1"})
    moved = msgspec.structs.replace(manifest, means=means, data="/moved")
    store = ResultStore(out, "two")
    again = store.add(store.begin(moved, fresh=False), [NewPortion(NEXT, measures(), 2.0)])
    assert [(stored.means, stored.wall_s) for stored in again.stored] == [(manifest.means, 1.5), (means, 2.0)]
    assert (again.means, again.wall_s, again.data) == (means, 3.5, "/moved")
    assert read_manifest(out, "two") == again


def test_titles_and_figures_may_change(out: LocalDirectory, manifest: SweepManifest) -> None:
    with_one_portion(out, manifest)
    redrawn = msgspec.structs.replace(manifest, definition={**manifest.definition, "title": "Another"})
    assert begin(out, redrawn).portions() == [PORTION]
    assert read_manifest(out, "two").definition["title"] == "Another"


def test_a_file_that_was_changed_or_removed_is_noticed(out: LocalDirectory, manifest: SweepManifest) -> None:
    file = with_one_portion(out, manifest).stored[0].measures.path
    for table, named in (
        (measures(2.0), "is not what was stored there; --fresh"),
        (measures().drop_columns(["metric"]), "no column metric"),
    ):
        out.delete(file)
        tables.write(out, file, table)
        with pytest.raises(TamperedError, match=named):
            begin(out, manifest)
    out.delete(file)
    with pytest.raises(TamperedError, match="is gone"):
        begin(out, manifest)


def test_the_files_of_a_killed_sweep_are_removed_and_no_others(out: LocalDirectory, manifest: SweepManifest) -> None:
    with_one_portion(out, manifest)
    bucket = out.root / "measures/experiment=two/bucket=1"
    bucket.mkdir()
    kept = out.root / "cells/experiment=two"
    kept.mkdir(parents=True)
    left = [bucket / "seeds-000020-000024.01234567.parquet", kept / "seeds-000020-000024.cell-3.01234567.parquet"]
    left.append(out.root / LOG / ".000002.json.01234567.new")
    others = [bucket / "mine.parquet", kept / "seeds.csv"]
    for path in left + others:
        path.write_bytes(b"")
    begin(out, manifest)
    assert [path.exists() for path in left + others] == [False] * 3 + [True] * 2
    assert len(files_of(out.root, MeasureRow, "two")) == 2


def test_tables_without_a_manifest_do_not_count(out: LocalDirectory, manifest: SweepManifest) -> None:
    with_one_portion(out, manifest)
    for number in manifest_log(out, "two").numbers():
        manifest_log(out, "two").delete(number)
    assert begin(out, manifest).stored == ()
    assert files_of(out.root, MeasureRow, "two") == []


def test_scores_are_replaced_only_after_the_new_ones_are_listed(out: LocalDirectory, manifest: SweepManifest) -> None:
    found = []
    for _ in range(2):
        store = ResultStore(out, "two")
        found.append(finish(store, store.begin(manifest, fresh=False)))
        assert read_manifest(out, "two") == found[-1]
        assert [path.relative_to(out.root).as_posix() for path in files_of(out.root, ScoreRow, "two")] == (
            [found[-1].scores.path] if found[-1].scores else None
        )
    assert found[0].scores != found[1].scores
    assert found[1].status == "complete"
    begin(out, manifest)
    assert read_manifest(out, "two").status == "running"
    assert len(files_of(out.root, ScoreRow, "two")) == 1


@pytest.mark.parametrize(
    ("number", "content", "told"),
    [
        (1, b'{"status": "complete"}\n', "000001.json is no manifest of ours"),
        (1, b'{"entry": "sto', "000001.json is cut, though later entries follow it"),
        (1, None, "000001.json is gone, though later entries follow it"),
        (0, None, "does not begin with the beginning of a sweep"),
    ],
)
def test_a_damaged_log_is_refused_and_a_fresh_sweep_replaces_it(
    number: int, content: bytes | None, told: str, out: LocalDirectory, manifest: SweepManifest
) -> None:
    with_one_portion(out, manifest)
    begin(out, manifest)
    path = out.root / LOG / f"{number:06}.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TamperedError, match=told):
        begin(out, manifest)
    assert begin(out, manifest, fresh=True).stored == ()
    assert begin(out, manifest).stored == ()


def test_a_manifest_of_an_earlier_version_is_refused(out: LocalDirectory) -> None:
    (out.root / "manifests").mkdir()
    (out.root / "manifests/two.json").write_text("{}")
    with pytest.raises(StorageError, match="manifest of an earlier version"):
        list_manifests(out)


def test_of_two_sweeps_the_later_goes_on_and_the_earlier_ends(out: LocalDirectory, manifest: SweepManifest) -> None:
    first, second, other = ResultStore(out, "two"), ResultStore(out, "two"), ResultStore(out, "three")
    begun = first.add(first.begin(manifest, fresh=False), [NewPortion(PORTION, measures(), 1.0)])
    other.begin(msgspec.structs.replace(manifest, experiment="three"), fresh=False)
    taken = second.begin(manifest, fresh=False)
    assert taken.portions() == [PORTION]
    with pytest.raises(StorageError, match=r"another sweep of two has begun in .*, and this one ends") as caught:
        first.add(begun, [NewPortion(NEXT, measures(), 1.0)])
    assert "\n" not in str(caught.value)
    with pytest.raises(StorageError, match="another sweep of two has begun"):
        finish(first, begun)
    second.add(taken, [NewPortion(NEXT, measures(2.0), 1.0)])
    assert read_manifest(out, "two").portions() == [PORTION, NEXT]
    begin(out, manifest)
    assert len(files_of(out.root, MeasureRow, "two")) == 2


def test_of_two_sweeps_that_begin_at_once_one_ends(
    out: LocalDirectory, manifest: SweepManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LocalDirectory.create

    def late(self: LocalDirectory, name: str, data: bytes) -> bool:
        monkeypatch.undo()
        begin(out, manifest)
        return create(self, name, data)

    monkeypatch.setattr(LocalDirectory, "create", late)
    with pytest.raises(StorageError, match="another sweep of two has begun"):
        begin(out, manifest)
    assert manifest_log(out, "two").numbers() == [0]


def test_an_entry_that_its_writer_did_not_complete_never_counts(out: LocalDirectory, manifest: SweepManifest) -> None:
    """On some file systems an entry shows while it is written. Its writer may still complete it."""
    stored = with_one_portion(out, manifest)
    half = out.root / LOG / "000002.json"
    half.write_bytes(b"")
    assert read_manifest(out, "two") == stored
    begin(out, manifest)
    half.write_bytes(encode_entry(SweepBegun(manifest, fresh=True)) + b"\n")
    assert read_manifest(out, "two").stored == stored.stored
    assert begin(out, manifest).stored == stored.stored


def test_an_entry_that_is_completed_while_the_log_is_read_is_seen(
    out: LocalDirectory, manifest: SweepManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a reader could count an older entry that this one declares void."""
    stored = with_one_portion(out, manifest)
    (out.root / LOG / "000002.json").write_bytes(b"")
    read = LocalDirectory.open_file

    def complete_last(self: LocalDirectory, name: str) -> Any:
        if name.endswith("000000.json"):
            line = encode_entry(SweepBegun(manifest, fresh=False, void=(1,))) + b"\n"
            (out.root / LOG / "000002.json").write_bytes(line)
        return read(self, name)

    monkeypatch.setattr(LocalDirectory, "open_file", complete_last)
    assert stored.stored
    assert read_manifest(out, "two").stored == ()


@pytest.mark.parametrize("at", range(3))
def test_a_kill_at_any_write_of_a_job_loses_nothing_stored(
    at: int, out: LocalDirectory, manifest: SweepManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = with_one_portion(out, manifest)
    store, writes = ResultStore(out, "two"), 0

    class Killed(BaseException):
        pass

    def counted(write: Any) -> Any:
        def attempt(*given: Any) -> Any:
            nonlocal writes
            if writes == at:
                raise Killed
            writes += 1
            return write(*given)

        return attempt

    begun = store.begin(manifest, fresh=False)
    monkeypatch.setattr(LocalDirectory, "open_new", counted(LocalDirectory.open_new))
    monkeypatch.setattr(LocalDirectory, "create", counted(LocalDirectory.create))
    with contextlib.suppress(Killed):
        store.add(begun, [NewPortion(NEXT, measures(), 2.0)])
    monkeypatch.undo()
    again = begin(out, manifest)
    assert again.stored[:1] == stored.stored
    assert len(again.stored) == len(files_of(out.root, MeasureRow, "two")) == (2 if at == 2 else 1)


def test_a_location_that_cannot_be_written_is_told_before_anything_is_made(
    out: LocalDirectory, manifest: SweepManifest
) -> None:
    (out.root / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file: Not a directory"):
        ResultStore(LocalDirectory(out.root / "file"), "two").check(manifest, fresh=False)
    assert ResultStore(LocalDirectory(out.root / "new/deep"), "two").check(manifest, fresh=False) is None
    assert not (out.root / "new").exists()
