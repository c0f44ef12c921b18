"""`veilcast lab report`: a page, or one line that says why there is none, and a code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import sample_results
from veilcast.cli import exits
from veilcast.cli.main import main


def test_it_writes_the_page_where_it_is_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample_results.write_result(tmp_path, "mesh-games", sample_results.make_experiments()["mesh-games"])
    assert main(["lab", "report", str(tmp_path)]) == exits.OK
    assert capsys.readouterr().out == f"wrote {tmp_path / 'report.html'}\n"
    elsewhere = tmp_path / "other" / "page.html"
    assert main(["lab", "report", str(tmp_path), "--out", str(elsewhere), "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out) == {"page": str(elsewhere)}
    assert elsewhere.read_text() == (tmp_path / "report.html").read_text()


def test_results_that_are_none_leave_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "report", str(tmp_path)]) != exits.OK
    sample_results.write_result(tmp_path, "mesh-games", sample_results.make_experiments()["mesh-games"])
    (tmp_path / "manifests/mesh-games/000000.json").write_text("{}\n")
    assert main(["lab", "report", str(tmp_path)]) != exits.OK
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "holds no results" in said[0]
    assert "is no manifest of ours" in said[1]
    assert not (tmp_path / "report.html").exists()
