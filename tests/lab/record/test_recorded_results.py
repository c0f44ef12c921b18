"""The results in the repository are what the code gives, follow from their scores, and are as experiments expect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.record.record_pages import read_recorded, render_record, summarise_published
from veilcast.lab.record.recorded_runs import Record, RecordedRun
from veilcast.lab.record.verification import check_verdicts, verify_run
from veilcast.lab.storage.location import LocalDirectory

RECORD = Record(Path(__file__).parents[3] / "docs" / "results")
QUICK = RECORD.list_runs(quick=True)
WHOLE = RECORD.list_runs()


@pytest.mark.all_only
@pytest.mark.parametrize("run", QUICK, ids=lambda run: run.name)
def test_a_quick_run_gives_the_recorded_scores(run: RecordedRun, tmp_path: Path) -> None:
    folder = os.environ.get("VEILCAST_DATA")
    if run.data_sha256 and folder is None:
        pytest.skip("VEILCAST_DATA names no data folder")
    assert verify_run(None, RECORD, run, LocalDirectory(tmp_path), data=Path(folder) if folder else None) == []


@pytest.mark.parametrize("run", WHOLE, ids=lambda run: run.name)
def test_recorded_verdicts_follow_from_the_recorded_scores_and_are_expected(run: RecordedRun) -> None:
    experiment = load_experiment(run.experiment)[1]
    scores, verdicts = RECORD.read_scores(run), RECORD.read_verdicts(run)
    assert list(check_verdicts(verdicts, run.experiment, experiment, scores, run.engine)) == []


@pytest.mark.all_only
def test_the_pages_of_the_record_are_those_that_it_gives() -> None:
    pages = render_record(RECORD)
    written = {
        path.relative_to(RECORD.directory).as_posix(): path
        for path in RECORD.directory.rglob("*")
        if path.suffix in (".md", ".svg") or path.name == "numbers.csv"
    }
    assert sorted(written) == sorted(pages)
    for name, text in pages.items():
        # Letters are measured with the fonts of the machine that draws, so a drawing may differ elsewhere.
        if not name.endswith(".svg"):
            assert written[name].read_text() == text


def test_the_readme_tells_the_counts_of_the_record() -> None:
    readme = Path(__file__).parents[3] / "README.md"
    assert summarise_published(read_recorded(RECORD)) in " ".join(readme.read_text().split())
