"""`veilcast lab`: arguments are checked before anything starts, and every error takes one line."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.stored_results import tables_in
from support.waits import HANG_S
from veilcast.cli import exits
from veilcast.cli.main import main
from veilcast.lab import tables
from veilcast.lab.experiment import definition as experiment
from veilcast.lab.experiment import sweep
from veilcast.lab.experiment.manifest import Environment, SweepManifest, describe_sweep, read_manifest
from veilcast.lab.experiment.store import ResultStore
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import VerdictRow


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["lab", *arguments])
    error = capsys.readouterr().err
    assert error.startswith("veilcast: ")
    assert error.count("\n") == 1
    return code, error


def test_every_experiment_is_listed_with_its_claim_its_size_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["experiments"]
    assert [row["name"] for row in rows] == list(experiment.packaged_names())
    assert all(row["claim"] and row["runs"] == row["cells"] * row["seeds"] > 0 < row["minutes"] for row in rows)
    assert all(row["title"] and row["engines"] for row in rows)
    assert "mesh-deezer" in {row["name"] for row in rows if row["data"]}
    assert "mesh-fig12" not in {row["name"] for row in rows if row["data"]}


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_list_fits_a_terminal(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["lab", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(experiment.packaged_names()) <= {line.split(" ")[0] for line in lines}
    assert main(["lab", "list", "mesh-*"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, [*lines, *told.splitlines()])) < int(columns)
    claim = experiment.load_experiment("mesh-publishers")[1].claim
    assert claim in " ".join(told.split())


def test_an_experiment_that_there_is_not_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "list", "mesh-fig99") == (
        3,
        "veilcast: no experiment mesh-fig99; `veilcast lab list` shows those there are\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["run", "mesh-fig99"], 3, "lab list"),
        (["run", "mash-*"], 3, "mash-*"),
        (["run", "gone.toml"], 3, "gone.toml"),
        (["run", "mesh-fig12", "--seeds", "0"], 3, "--seeds"),
        (["run", "mesh-fig12", "--seeds", "1000001"], 3, "--seeds"),
        (["run", "mesh-fig12", "--data", "/no/such/place"], 4, "/no/such/place"),
        (["run", "mesh-fig12", "mesh-gnutella"], 3, "mesh-gnutella is read from a data folder: name it with --data"),
        (["run", "brokers-fig9", "--trace", "/no/such/trace"], 4, "/no/such/trace cannot be read as a trace"),
        (["run", "mesh-active", "--engine", "kernel"], 3, "runs on machines only, not on kernel"),
        (["run", "mesh-fig12", "--master", "spark://127.0.0.1:1"], 14, "127.0.0.1:1"),
        (["run", "mesh-fig12", "--master", "sparc://a:1"], 3, "sparc://a:1"),
        (["report", "/no/such/place"], 4, "/no/such/place"),
        (["bench", "attacks", "--rows", "5", "--quick"], 3, "`./run bench mesh_models`"),
    ],
)
def test_an_impossible_plan_is_refused_at_once(
    arguments: list[str],
    code: int,
    word: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("VEILCAST_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    told, error = failed(capsys, *arguments)
    assert (told, word in error) == (code, True)


def test_a_trace_without_interactions_or_for_an_experiment_without_replay_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("sender,receiver,hours\n1,1,5\n")
    code, error = failed(capsys, "run", "brokers-fig9", "--trace", str(file))
    assert (code, "no interaction in it; sender and receiver are one in line 2" in error) == (3, True)
    file.write_text("sender,receiver,hours\n1,2,5\n")
    code, error = failed(capsys, "run", "brokers-fig7", "--trace", str(file))
    assert (code, "brokers-fig7 replays no trace" in error) == (3, True)


def test_an_error_names_the_wrong_key_of_an_experiment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "a"\nclaim = "b"\nreading = "c"\nminutes = 1\nbase = { nu = 0.5 }\n')
    code, error = failed(capsys, "run", str(file))
    assert code == 3
    assert "nu" in error


def test_all_missing_data_files_are_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, error = failed(capsys, "run", "mesh-gnutella", "mesh-deezer", "--data", str(tmp_path))
    assert (code, error.count("\n"), error.count("get it from")) == (4, 1, 3)
    code, error = failed(capsys, "run", "mesh-deezer")
    assert (code, error.count("\n"), error.count("pubsub/deezer_ro")) == (3, 1, 2)


def test_an_unknown_metric_is_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(_: str) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("veilcast.lab.spark.session", start)
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "a"\nclaim = "b"\nreading = "c"\nminutes = 1\nbase = { nodes = 60 }\naxes = { degree = [4] }\n'
        '[[figures]]\nname = "f"\ntitle = "F"\nx = "degree"\nx_label = "d"\ny_label = "n"\n'
        'curves = [{ label = "l", metric = "overlai" }]\n'
    )
    code, error = failed(capsys, "run", str(file), "--out", str(tmp_path / "out"))
    assert (code, error.count("\n")) == (3, 1)
    assert "experiment mine: figures.f, l: there is no metric 'overlai'; there are " in error
    assert "did you mean 'overlay'?" in error


def test_an_unwritable_result_directory_is_reported_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(_: str) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("veilcast.lab.spark.session", start)
    (tmp_path / "file").write_text("")
    assert failed(capsys, "run", "mesh-fig12", "--out", str(tmp_path / "file"))[0] == 4
    definition = experiment.load_experiment("mesh-fig12")[1]
    before = describe_sweep("mesh-fig12", definition, engine="machines", quick=False, folder=None, command="")
    ResultStore(LocalDirectory(tmp_path / "out"), "mesh-fig12").begin(before, fresh=False)
    code, error = failed(capsys, "run", "mesh-fig12", "--out", str(tmp_path / "out"))
    assert (code, "with engine machines, not kernel" in error) == (4, True)


def test_without_the_extra_the_lab_says_what_to_install() -> None:
    blocked = "import sys; sys.modules['pyspark'] = None; from veilcast.cli.main import main; sys.exit(main())"
    for command in (["doctor"], ["run", "mesh-fig12"], ["run", "mesh-fig12", "--master", "local[1]"]):
        child = subprocess.run(
            [sys.executable, "-c", blocked, "lab", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
        assert child.returncode == 3
        assert child.stderr.count("\n") == 1
        assert "pip install 'veilcast[lab]'" in child.stderr


def verdict(**given: Any) -> VerdictRow:
    numbers = 587, 600, 560, 640, 80, 13
    row = VerdictRow(
        "two", "kernel", "published", "it", "P0 5", "f", "c", None, "settles", *numbers, "fits", "fits", ""
    )
    return msgspec.structs.replace(row, **given)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets a sweep end with a verdict, without Spark and without a run."""
    means = Environment("local[2]", 2, {})
    manifest = SweepManifest("two", {}, "kernel", False, None, {}, "aaaa", "", False, means, "", seeds=30)

    def plant(row: VerdictRow, *scores: tables.ScoreRow) -> None:
        found = tables.from_rows(tables.ScoreRow, scores)
        result = sweep.SweepResult(manifest, 0, found, tables.from_rows(VerdictRow, [row]))
        monkeypatch.setattr(sweep, "run_sweep", lambda *_, **__: result)
        monkeypatch.setattr(sweep, "check_sweep", lambda *_, **__: None)
        monkeypatch.setattr("veilcast.lab.spark.Progress", lambda *_, **__: contextlib.nullcontext(SilentBar()))

    return plant


class SilentBar:
    """A bar that is not drawn."""

    def say(self, say: Callable[[str], object], lines: list[str]) -> None:
        for line in lines:
            say(line)


def test_json_has_no_infinity(judged: Callable[[VerdictRow], None], capsys: pytest.CaptureFixture[str]) -> None:
    judged(verdict(reproduced=math.inf, high=math.inf, difference=math.inf, verdict="not reproduced"))
    assert main(["lab", "run", "mesh-fig14", "--json"]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(word)

    (found,) = json.loads(capsys.readouterr().out, parse_constant=refuse)["experiments"]
    assert (found["verdicts"][0]["reproduced"], found["verdicts"][0]["low"]) == (None, 560)


@pytest.mark.parametrize(
    ("kind", "called"), [("published", "published"), ("earlier", "in an earlier run"), ("check", "stated")]
)
def test_only_a_published_number_is_called_published(
    kind: str, called: str, judged: Callable[[VerdictRow], None], capsys: pytest.CaptureFixture[str]
) -> None:
    judged(verdict(kind=kind, stated=0.927, reproduced=0.937, low=0.936, high=0.938, verdict="near"))
    assert main(["lab", "run", "mesh-fig08"]) == 0
    printed = capsys.readouterr().out
    assert f": {called} 0.927, reproduced 0.937 [0.936, 0.938]: near (expected: fits)" in printed
    assert ("published" in printed) == (kind == "published")


def test_a_check_ends_with_a_code_of_its_own_where_a_verdict_is_not_the_expected_one(
    judged: Callable[[VerdictRow], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict that is falsified on purpose, and numbers without a verdict, are told by name."""
    judged(verdict(verdict="near"))
    assert main(["lab", "run", "mesh-fig14", "--check"]) == 13
    assert "not as expected: mesh-fig14, " in (printed := capsys.readouterr().out)
    assert ": near, not fits" in printed
    assert ": no verdict" in printed


@pytest.mark.parametrize("smaller", [["--quick"], ["--seeds", "3"]])
def test_a_check_of_fewer_seeds_is_refused(smaller: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "run", "mesh-fig14", "--check", *smaller]) == 3
    assert "--check holds for all seeds" in capsys.readouterr().err


def test_the_ends_of_each_curve_and_the_curves_without_points_are_printed(
    judged: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    cells = list(experiment.load_experiment("mesh-fig12")[1].make_cells())
    scores = [
        tables.ScoreRow("mesh-fig12", cell.name, cell.series, "", "overlay", 0, 10 + number, 0, 0, 0, 4)
        for number, cell in enumerate(cells)
    ]
    judged(verdict(), *scores)
    assert main(["lab", "run", "mesh-fig12"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "  overlay, PF: 10 at mu 0, 20 at mu 1" in out
    judged(verdict())
    assert main(["lab", "run", "mesh-fig12"]) == 0
    told = "  curves without points, since no run of these gave their metric: overlay, PF"
    assert any(line.startswith(told) for line in capsys.readouterr().out.splitlines())


WAITS_IN_THE_SECOND_PORTION = """
import os, signal, sys
from veilcast.cli.main import main
from veilcast.lab.runs import table; from veilcast.lab.experiment import plan
from veilcast.lab.experiment.params import Measure

plan.BUCKET_SEEDS = 2
wait, *outs = sys.argv[1:]

def engine(params, seed, data):
    if wait and seed == 2:
        os.close(os.open(wait, os.O_WRONLY))
        signal.pause()
    return [Measure("", "overlay", 0.0, 100 * params.mu + seed)]

table.ENGINES = {"kernel": engine}
sweep = ["lab", "run", "mesh-fig12", "--seeds", "4", "--master", "local[2]", "--out"]
sys.exit(max([main([*sweep, out]) for out in outs]))
"""


def start(wait: Path | None, *outs: Path) -> subprocess.Popen[str]:
    """A sweep; with a pipe to wait at, its second portion never ends, and says by opening it that it has begun.

    Several are made one after the other by one process, for Java takes long to start.
    """
    return subprocess.Popen(
        [sys.executable, "-c", WAITS_IN_THE_SECOND_PORTION, str(wait or ""), *map(str, outs)],
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.all_only
@pytest.mark.heavy
def test_a_sweep_that_is_interrupted_or_killed_goes_on_to_the_same_tables(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for ending, code, said in ((signal.SIGINT, exits.INTERRUPTED, "veilcast: interrupted\n"), (signal.SIGKILL, -9, "")):
        sweep = start(pipe, tmp_path / "ended")
        with pipe.open("rb"):
            sweep.send_signal(ending)
            _, error = sweep.communicate(timeout=HANG_S)
        assert (sweep.returncode, error) == (code, said)
        manifest = read_manifest(LocalDirectory(tmp_path / "ended"), "mesh-fig12")
        assert (manifest.status, len(manifest.stored)) == ("running", 1)
    sweep = start(None, tmp_path / "ended", tmp_path / "whole")
    assert (sweep.communicate(timeout=HANG_S)[1], sweep.returncode) == ("", 0)
    assert tables_in(tmp_path / "ended") == tables_in(tmp_path / "whole") != {}
