"""A record holds what a run gave, is made again to the last digit, and no number in it can be changed unseen."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from veilcast.cli.main import main
from veilcast.errors import TamperedError
from veilcast.lab.experiment import definition
from veilcast.lab.record.record_pages import list_missing, render_record
from veilcast.lab.record.recorded_runs import Record
from veilcast.lab.record.verification import check_verdicts

NAME = "brokers-fig7"
"""The cheapest packaged experiment, with published numbers, numbers of earlier runs and an unexpected miss."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of one experiment, whole and quick."""
    folder = tmp_path_factory.mktemp("record")
    for out, options in (("whole", []), ("quick", ["--quick"])):
        assert main(["lab", "run", NAME, "--out", str(folder / out), *options]) == 0
    assert main(["lab", "record", str(folder / "whole"), str(folder / "quick"), "-o", str(folder / "record")]) == 0
    return folder / "record"


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "record"))


def verify(folder: Path, *options: str) -> int:
    return main(["lab", "verify", "--record", str(folder), *options])


def change_first_score(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    place = rows[0].index("value")
    rows[1][place] = repr(float(rows[1][place]) * (1 + 1e-6))
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_a_record_is_made_again_to_the_last_digit(made: Path, options: list[str]) -> None:
    assert verify(made, *options) == 0


def test_a_score_that_was_changed_is_found(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_first_score(kept / "quick" / f"{NAME}.kernel.scores.csv")
    assert verify(kept, "--quick") == 13
    assert "recorded value" in capsys.readouterr().out


def test_a_score_that_was_removed_and_one_that_was_added_are_found(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept / "quick" / f"{NAME}.kernel.scores.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:1], *lines[2:]]))
    assert verify(kept, "--quick") == 13
    assert "and not recorded" in capsys.readouterr().out
    cell, rest = lines[1].split(",", 1)
    path.write_text("".join([*lines, f"{cell} of nobody,{rest}"]))
    assert verify(kept, "--quick") == 13
    assert "and not made again" in capsys.readouterr().out


def test_a_verdict_that_is_falsified_is_found(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept / "runs" / f"{NAME}.kernel.verdicts.csv"
    text = path.read_text()
    assert ",fits," in text
    path.write_text(text.replace(",fits,", ",near,", 1))
    assert verify(kept) == 13
    assert "fits" in (printed := capsys.readouterr().out)
    assert "and now" in printed


def test_verdicts_are_judged_again_from_the_recorded_scores(made: Path, kept: Path) -> None:
    """So a statement that was corrected needs no new runs."""
    verdicts = f"runs/{NAME}.kernel.verdicts.csv"
    (kept / verdicts).write_text((kept / verdicts).read_text().replace("not reproduced", "fits"))
    assert verify(kept) == 13
    assert main(["lab", "record", "-o", str(kept)]) == 0
    assert (kept / verdicts).read_bytes() == (made / verdicts).read_bytes()


def test_an_expectation_that_does_not_come_out_is_found(made: Path) -> None:
    record = Record(made)
    (run,) = record.list_runs()
    experiment = definition.load_experiment(NAME)[1]
    text = definition.read_experiment(NAME)
    assert 'expect = "not reproduced"' in text
    hopeful = definition.parse_experiment(text.replace('expect = "not reproduced"', "").encode(), NAME)
    scores, verdicts = record.read_scores(run), record.read_verdicts(run)
    assert not list(check_verdicts(verdicts, NAME, experiment, scores))
    found = list(check_verdicts(verdicts, NAME, hopeful, scores))
    assert found
    assert all("not reproduced, not fits as expected" in line for line in found)


def test_a_table_that_is_no_table_of_scores_is_refused_with_its_place(kept: Path) -> None:
    record = Record(kept)
    (run,) = record.list_runs()
    path = kept / "runs" / f"{NAME}.kernel.scores.csv"
    whole = path.read_text()
    path.write_text(whole + "a,b\n")
    with pytest.raises(TamperedError, match=f"line {len(whole.splitlines()) + 1}"):
        record.read_scores(run)
    path.write_text("x,y\n")
    with pytest.raises(TamperedError, match="does not name the columns"):
        record.read_scores(run)


def test_the_pages_have_every_number_and_say_what_is_missing(made: Path) -> None:
    record = Record(made)
    (run,) = record.list_runs()
    pages = render_record(record)
    report = pages["P4.md"]
    for row in record.read_verdicts(run):
        assert f"| {row.what} | {row.kind} |" in report
    assert run.command in report
    assert f"figures/{NAME}.kernel." in report
    assert len(list(csv.DictReader(pages["numbers.csv"].splitlines()))) == len(record.read_verdicts(run))
    assert "mesh-fig08 (kernel)" in pages["README.md"]
    assert NAME not in pages["README.md"].split("Not run yet")[1]
    assert list_missing([]) != list_missing_of(record)


def list_missing_of(record: Record) -> list[str]:
    from veilcast.lab.record.record_pages import RecordedResult

    return list_missing(
        RecordedResult(run, definition.load_experiment(run.experiment)[1], ()) for run in record.list_runs()
    )


def test_an_unknown_name_is_refused_in_one_line(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(made, "nothing") == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_json_names_every_difference(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_first_score(kept / "quick" / f"{NAME}.kernel.scores.csv")
    assert verify(kept, "--quick", "--json") == 13
    found = json.loads(capsys.readouterr().out)
    assert found["differences"] == len(found["runs"][f"{NAME}.kernel"]) == 1


def test_a_record_without_such_runs_says_how_to_fill_it(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(kept / "runs")
    assert verify(kept) == 4
    assert "`veilcast lab record` fills a record; --quick verifies its quick runs" in capsys.readouterr().err
    assert verify(tmp_path / "nothing", "--quick") == 4
    assert "records no such runs" in capsys.readouterr().err
