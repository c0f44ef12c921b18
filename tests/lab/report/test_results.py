"""Only what a sweep of ours left is read; anything else is told in one line that names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import sample_results
from veilcast.errors import LocalError, StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.report import results
from veilcast.lab.storage.location import LocalDirectory


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    for name, experiment in sample_results.make_experiments().items():
        sample_results.write_result(tmp_path, name, experiment)
    return tmp_path


def edit(path: Path, **changes: object) -> None:
    """Change what an entry says of the manifest."""
    entry = json.loads(path.read_text())
    entry["manifest"] |= changes
    path.write_text(json.dumps(entry) + "\n")


def test_every_result_comes_with_its_definition_scores_and_verdicts(swept: Path) -> None:
    found = {result.name: result for result in results.read_results(LocalDirectory(swept))}
    assert list(found) == sorted(sample_results.make_experiments())
    degrees = found["mesh-degrees"]
    assert degrees.experiment == sample_results.make_experiments()["mesh-degrees"]
    assert degrees.seeds == 100
    assert [row.verdict for row in degrees.verdicts] == ["near", "fits", "near", "not reproduced", "fits"]
    assert degrees.scores.steps("BL degree=2", "leaf", "accuracy_all")[0.0].value == pytest.approx(0.937, abs=0.01)


def test_a_sweep_that_runs_or_was_quick_is_in_doubt(swept: Path) -> None:
    (swept / "manifests/mesh-games/000002.json").unlink()
    edit(swept / "manifests/mesh-sizes/000000.json", quick=True)
    doubts = {result.name: result.doubt for result in results.read_results(LocalDirectory(swept))}
    assert doubts == {"mesh-degrees": "", "mesh-games": "incomplete", "mesh-lambdas": "", "mesh-sizes": "quick"}


def test_a_sweep_that_has_just_begun_has_no_scores_and_may_be_read(tmp_path: Path) -> None:
    experiment = sample_results.make_experiments()["mesh-games"]
    sample_results.write_manifest(tmp_path, "mesh-games", experiment)
    (result,) = results.read_results(LocalDirectory(tmp_path))
    assert (result.doubt, result.seeds, result.verdicts) == ("incomplete", 0, ())


@pytest.mark.parametrize("empty", ["", "not-there"])
def test_a_directory_without_results_is_told_with_what_makes_them(tmp_path: Path, empty: str) -> None:
    with pytest.raises(StorageError, match="holds no results; `veilcast lab run"):
        results.read_results(LocalDirectory(tmp_path / empty))


def test_scores_without_a_manifest_are_refused(swept: Path) -> None:
    shutil.rmtree(swept / "manifests/mesh-games")
    with pytest.raises(TamperedError, match=r"experiment=mesh-games/all.parquet has no manifest"):
        results.read_results(LocalDirectory(swept))


def test_a_complete_sweep_without_its_scores_is_refused(swept: Path) -> None:
    (swept / tables.place(tables.ScoreRow, "mesh-games") / "all.parquet").unlink()
    with pytest.raises(StorageError, match=r"cannot read .*scores/.*mesh-games/all\.parquet: No such file"):
        results.read_results(LocalDirectory(swept))


@pytest.mark.parametrize(
    "manifest",
    [b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"experiment": "mesh-games"}'],
    ids=["no keys", "no object", "no text", "deep", "few keys"],
)
def test_a_manifest_that_is_none_is_named(swept: Path, manifest: bytes) -> None:
    (swept / "manifests/mesh-games/000001.json").write_bytes(manifest + b"\n")
    with pytest.raises(TamperedError, match=r"mesh-games/000001\.json is no manifest of ours"):
        results.read_results(LocalDirectory(swept))


def test_a_definition_that_is_none_and_a_manifest_of_another_are_named(swept: Path) -> None:
    path = swept / "manifests/mesh-games/000000.json"
    whole = path.read_bytes()
    edit(path, definition={"title": "?"})
    with pytest.raises(TamperedError, match="the manifest of mesh-games is no manifest of ours"):
        results.read_results(LocalDirectory(swept))
    path.write_bytes(whole)
    edit(path, experiment="mesh-sizes")
    with pytest.raises(TamperedError, match="is the manifest of mesh-sizes"):
        results.read_results(LocalDirectory(swept))


@pytest.mark.parametrize("row", [tables.ScoreRow, tables.VerdictRow])
def test_a_file_of_another_table_is_named_with_its_column(
    swept: Path, row: type[tables.ScoreRow | tables.VerdictRow]
) -> None:
    path = swept / tables.place(row, "mesh-games") / "all.parquet"
    pq.write_table(pa.table({"cell": ["a"], "step": ["not a number"]}), path)
    with pytest.raises(TamperedError, match=r"all\.parquet.*column") as caught:
        results.read_results(LocalDirectory(swept))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_short_is_named(swept: Path) -> None:
    path = swept / tables.place(tables.ScoreRow, "mesh-games") / "all.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LocalError, match=r"all\.parquet"):
        results.read_results(LocalDirectory(swept))


def test_a_verdict_of_an_unknown_word_is_refused(swept: Path) -> None:
    name, experiment = "mesh-games", sample_results.make_experiments()["mesh-games"]
    rows = sample_results.make_verdicts(name, experiment, sample_results.make_scores(name, experiment))
    odd = tables.from_rows(tables.VerdictRow, rows).to_pylist()[0] | {"verdict": "splendid"}
    path = swept / tables.place(tables.VerdictRow, name) / "all.parquet"
    path.unlink()
    table = tables.from_rows(tables.VerdictRow, [tables.VerdictRow(**odd)])
    tables.write(LocalDirectory(swept), path.relative_to(swept).as_posix(), table)
    with pytest.raises(TamperedError, match="splendid"):
        results.read_results(LocalDirectory(swept))
