"""The challenge is made again bit for bit, keeps its labels to itself, and scores anybody's attacker fairly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from veilcast.cli.main import main
from veilcast.lab.challenge import files, plan
from veilcast.lab.challenge.lab_attackers import CONTROL
from veilcast.lab.challenge.observed_runs import QUESTION, make_runs, normalise
from veilcast.lab.challenge.scores import make_labels, read_baselines

ONE = ["mesh-paper/01", "mesh-paper/18", "relay-hardened/05", "tree-paper/18", "foil-hardened/14"]
"""A setting of several views, each made in a fraction of a second."""
TENTH = [each.name for each in plan.list_settings("small") if each.number % 10 == 5]
OUTSIDE = '''
"""Members that send many large frames publish: it imports nothing of the lab."""
import pyarrow.compute as pc

ROWS = ["brokers-*"]

def learn(observed, labels):
    assert labels["holds"].null_count

def guess(observed, questions):
    cells = observed["cells"].filter(pc.greater(observed["cells"]["size"], 400))
    counted = cells.group_by(["run", "src"]).aggregate([([], "count_all")])
    sent = {(run, src): many for run, src, many in zip(*(column.to_pylist() for column in counted.columns))}
    sign = {"publisher": 1, "subscriber": -1}
    asked = zip(*(questions[name].to_pylist() for name in ("run", "role", "node")))
    return [sign[role] * sent.get((run, node), 0) for run, role, node in asked]
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of a few settings."""
    folder = tmp_path_factory.mktemp("challenge") / "set"
    assert main(["lab", "challenge", "make", str(folder), *only(ONE), "--only", "brokers-hardened/01"]) == 0
    return folder


def only(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def setting(name: str) -> plan.Setting:
    [found] = plan.list_settings("small", [name])
    return found


def truth_of(name: str) -> pa.Table:
    """Guesses that are the truth."""
    labels = make_labels(setting(name))
    scores = pc.fill_null(labels["holds"], False).cast(pa.float64())
    return labels.select(list(QUESTION)).append_column("score", scores)


def score(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["lab", "score", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["lab", "score", *arguments])
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    return code, told


def test_every_row_has_twenty_settings_or_more_whose_parameters_are_valid() -> None:
    for size in plan.SIZES:
        settings = plan.list_settings(size)
        rows = plan.list_rows(settings)
        assert [row.split("-")[0] for row in rows[::2]] == ["mesh", "relay", "tree", "foil", "brokers"]
        assert {row.split("-")[1] for row in rows} == {"paper", "hardened"}
        assert len(rows) == 10
        assert all(sum(each.row == row for each in settings) >= 20 for row in rows)
        names = [each.name for each in settings]
        assert len(names) == len(set(names))


def test_the_same_set_has_the_same_bytes(made: Path, tmp_path: Path) -> None:
    assert main(["lab", "challenge", "make", str(tmp_path / "again"), *only(ONE)]) == 0
    found = list((tmp_path / "again").rglob("*.parquet"))
    assert len(found) > 40
    for path in found:
        assert path.read_bytes() == (made / path.relative_to(tmp_path / "again")).read_bytes(), path


def test_the_set_is_that_of_the_repository(made: Path) -> None:
    assert main(["lab", "challenge", "check", str(made)]) == 0


def test_the_plan_is_that_of_the_repository() -> None:
    for size in plan.SIZES:
        assert files.known_digests(size)["plan"] == plan.digest_plan(size)


@pytest.mark.all_only
def test_a_tenth_of_the_small_size_is_that_of_the_repository() -> None:
    known = files.known_digests("small")
    for name in TENTH:
        for place, digest in files.digest_setting(setting(name)):
            assert known[place] == digest, place


@pytest.mark.heavy
def test_the_small_size_is_that_of_the_repository() -> None:
    found = {place: digest for each in plan.list_settings("small") for place, digest in files.digest_setting(each)}
    assert found | {"plan": plan.digest_plan("small")} == files.known_digests("small")


@pytest.mark.heavy
def test_the_sampled_settings_of_the_large_size_are_those_of_the_repository() -> None:
    known = files.known_digests("large")
    names = sorted({place.partition("/")[2] for place in known} - {""})
    assert len(names) >= 5
    for each in plan.list_settings("large", names):
        for place, digest in files.digest_setting(each):
            assert known[place] == digest, place


@pytest.mark.parametrize("change", ["value", "row", "column"])
def test_a_changed_file_is_found(made: Path, tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    copied = Path(shutil.copytree(made, tmp_path / "set"))
    path = copied / "test" / "mesh-paper/01" / "cells.parquet"
    table = pq.read_table(path, partitioning=None)
    if change == "value":
        sizes = table["size"].to_numpy().copy()
        sizes[7] += 1
        table = table.set_column(table.column_names.index("size"), "size", pa.array(sizes))
    elif change == "row":
        table = table.slice(1)
    else:
        table = table.set_column(table.column_names.index("size"), "size", table["size"].cast(pa.int32()))
    pq.write_table(table, path)
    assert main(["lab", "challenge", "check", str(copied)]) == 13
    assert "differs: test/mesh-paper/01" in capsys.readouterr().out


def test_a_test_part_has_questions_and_no_label(made: Path) -> None:
    assert list((made / "train").rglob("labels.parquet"))
    assert not list((made / "test").rglob("labels.parquet"))
    assert not list(made.rglob("truth*"))
    for path in (made / "test").rglob("questions.parquet"):
        assert pq.read_schema(path).names == list(QUESTION)


def test_the_order_of_rows_and_the_names_of_nodes_tell_nothing(made: Path) -> None:
    for path in made.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        assert normalise(table).equals(table.combine_chunks()), path
    chance = [row for row in read_baselines("small") if row.attack == CONTROL]
    assert len(chance) > 10
    # With this many intervals at 95 %, one or two may miss by chance.
    assert sum(not row.auc_low <= 0.5 <= row.auc_high for row in chance) <= 3
    assert all(abs(row.auc - 0.5) < 0.2 for row in chance)


def test_a_salt_changes_the_test_part_alone() -> None:
    [name, *_] = ONE
    salted = {part: files.tables_of(make_runs(setting(name), part, b"a salt of ours"), part) for part in plan.PARTS}
    known = files.known_digests("small")
    assert files.digest_tables(salted["train"]) == known[f"train/{name}"]
    assert files.digest_tables(salted["test"]) != known[f"test/{name}"]


def test_a_salted_set_is_scored_with_its_salt_alone(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    salt, other = tmp_path / "salt", tmp_path / "other"
    salt.write_text("sixteen bytes or more")
    other.write_text("other bytes than those")
    folder, name = tmp_path / "set", "mesh-paper/01"
    assert main(["lab", "challenge", "make", str(folder), "--only", name, "--salt-file", str(salt)]) == 0
    guesses = tmp_path / "guesses.parquet"
    questions = pq.read_table(folder / "test" / name / "questions.parquet", partitioning=None)
    pq.write_table(questions.append_column("score", pa.array(np.zeros(len(questions)))), guesses)
    found = score(capsys, str(guesses), "--set", str(folder), "--only", name, "--salt-file", str(salt))
    assert found["rows"][0]["auc"] == 0.5
    code, told = refuse(capsys, str(guesses), "--set", str(folder), "--only", name, "--salt-file", str(other))
    assert (code, "with another salt" in told or "--salt-file" in told) == (3, True)
    code, told = refuse(capsys, str(guesses), "--set", str(folder), "--only", name)
    assert (code, "with a salt" in told) == (3, True)
    other.write_text("short")
    assert "at least 16 bytes" in refuse(capsys, str(guesses), "--salt-file", str(other))[1]


def test_the_truth_scores_one_and_shuffled_truth_scores_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guesses.parquet"
    for name in ONE:
        truth = truth_of(name)
        pq.write_table(truth, path)
        for row in score(capsys, str(path), "--only", name)["rows"]:
            assert (row["auc"], row["tpr_1"], row["precision"]) == (1, 1, 1), row
    rng, found = np.random.default_rng(1), []
    truth = truth_of("foil-hardened/14")
    for _ in range(5):
        shuffled = truth.set_column(4, "score", pa.array(rng.permutation(truth["score"].to_numpy())))
        pq.write_table(shuffled, path)
        [row] = score(capsys, str(path), "--only", "foil-hardened/14")["rows"]
        found.append(row["auc"])
    assert abs(np.mean(found) - 0.5) < 0.01
    constant = truth.set_column(4, "score", pa.array(np.ones(len(truth))))
    pq.write_table(constant, path)
    [row] = score(capsys, str(path), "--only", "foil-hardened/14")["rows"]
    assert row["auc"] == 0.5
    assert row["precision"] == pytest.approx(row["base"])


def test_an_attacker_from_outside_is_scored_beside_the_labs(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "outside.py"
    code.write_text(OUTSIDE)
    assert "veilcast" not in OUTSIDE
    found = score(capsys, str(code), "--set", str(made))
    by_role = {row["role"]: row for row in found["rows"]}
    assert by_role["publisher"]["attack"] == "outside"
    assert by_role["publisher"]["auc"] > 0.9
    assert by_role["publisher"]["base"] == pytest.approx(1 / 3)
    assert [(row["row"], row["chosen"]) for row in found["lab"]] == [("brokers-hardened", True)] * 2
    assert "mesh-paper" in found["not_guessed"]
    assert main(["lab", "score", str(code), "--set", str(made)]) == 0
    told = capsys.readouterr().out
    assert "brokers-hardened, captures, publisher" in told
    assert "the lab's strongest" in told


def test_an_attacker_in_the_labs_form_gives_the_scores_of_the_lab(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from veilcast.lab.attack.observer.attackers import score_closure\n"
        "from veilcast.lab.attack.observer.observations import WireObservations\n"
        "from veilcast.lab.attack.registry import SUBSCRIBER, Attacker\n"
        'ATTACKER = Attacker("mine", SUBSCRIBER, WireObservations, score_closure)\n'
    )
    own = score(capsys, str(code), "--set", str(made), "--only", "mesh-paper/01")["rows"]
    assert main(["lab", "challenge", "baselines", str(made), "--only", "mesh-paper/01", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    [closure] = [row for row in rows if row["attack"] == "closure"]
    assert [row["auc"] for row in own] == [closure["auc"]]
    assert closure["auc"] > 0.8


Change = Callable[[pa.Table], pa.Table]


def _with_score(place: int, value: float) -> Change:
    def change(table: pa.Table) -> pa.Table:
        scores = table["score"].to_numpy().copy()
        scores[place] = value
        return table.set_column(4, "score", pa.array(scores))

    return change


def _with_first(column: str, value: str) -> Change:
    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        return table.set_column(table.column_names.index(column), column, pa.array([value, *values[1:]]))

    return change


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda table: table.drop_columns(["score"]), "has no column score; guesses have the columns run, topic"),
        (lambda table: table.drop_columns(["run", "node"]), "has no column run and no node"),
        (_with_score(3, float("nan")), "the score of row 4 is nan, and 1 are no finite numbers"),
        (_with_score(0, float("inf")), "the score of row 1 is inf"),
        (_with_first("run", "mesh-paper/99/test/0"), "first about run mesh-paper/99/test/0; test runs are called"),
        (_with_first("run", "mesh-paper/01/train/0"), "about no test run"),
        (_with_first("node", "n999"), "1 guesses are about what was not asked, first publisher n999 in run"),
        (_with_first("role", "king"), "first king n"),
        (lambda table: table.slice(1), "1 questions: each has no guess, first publisher n"),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "has several guesses"),
        (lambda table: table.set_column(4, "score", pa.array(["high"] * len(table))), "scores are numbers"),
    ],
)
def test_wrong_guesses_are_refused_in_one_line_with_the_next_step(
    change: Change, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guesses.parquet"
    pq.write_table(change(truth_of("mesh-paper/01")), path)
    code, told = refuse(capsys, str(path), "--only", "mesh-paper/01")
    assert (code, word in told) == (3, True), told


def test_a_row_with_guesses_about_some_runs_alone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guesses.csv"
    truth = truth_of("mesh-paper/01")
    pyarrow.csv.write_csv(truth.filter(pc.not_equal(truth["run"], "mesh-paper/01/test/1")), path)
    code, told = refuse(capsys, str(path), "--only", "mesh-paper/01")
    assert (code, "has no guess" in told, "--only" in told) == (3, True, True)
    pyarrow.csv.write_csv(truth, path)
    assert score(capsys, str(path), "--only", "mesh-paper/01")["rows"][0]["auc"] == 1


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("", 3, "is empty"),
        ("x = 1", 3, "has neither a function guess(observed, questions) nor ATTACKER"),
        ("import veilcast.lab.challenge.observed_runs", 3, "an attacker cannot import veilcast.lab.challenge"),
        ("def guess(observed, questions):\n    return observed['truth']", 15, "KeyError: 'truth', line 2"),
        ("def guess(observed, questions):\n    return [1.0]", 15, "its scores have shape (1,)"),
        ("def guess(observed, questions):\n    return [float('nan')] * len(questions)", 15, "are no finite numbers"),
    ],
)
def test_wrong_code_is_refused_in_one_line(
    text: str, code: int, word: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    found, told = refuse(capsys, str(path), "--set", str(made), "--only", "mesh-paper/01")
    assert (found, word in told) == (code, True), told


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["challenge", "make"], 3, "needs a directory"),
        (["challenge", "list", "here"], 3, "takes no directory"),
        (["challenge", "check", "nowhere"], 4, "`veilcast lab challenge make` makes one"),
        (["challenge", "list", "--only", "mash-*"], 3, "the rows are mesh-paper"),
        (["score", "none.parquet"], 4, "cannot read none.parquet"),
        (["score", "none.py"], 3, "--set names a set"),
    ],
)
def test_an_impossible_request_is_refused_with_the_next_step(
    arguments: list[str], code: int, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", *arguments]) == code
    assert word in capsys.readouterr().err


def test_a_set_that_was_interrupted_is_continued_and_another_one_is_not_mixed_in(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = Path(shutil.copytree(made, tmp_path / "set"))
    shutil.rmtree(copied / "test" / "mesh-paper/01")
    capsys.readouterr()
    assert main(["lab", "challenge", "make", str(copied), *only(ONE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["directories"] == 1
    assert (copied / "SHA256SUMS").read_bytes() == (made / "SHA256SUMS").read_bytes()
    assert main(["lab", "challenge", "make", str(copied), "--size", "large", "--only", ONE[0]]) == 3
    assert "another size or salt" in capsys.readouterr().err
