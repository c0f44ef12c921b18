"""Experiments on the user's own files, by TOML alone: a graph like the Internet's, subscriptions, latencies, series."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilcast.cli.main import main
from veilcast.errors import ConfigError
from veilcast.lab.experiment import definition
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.foil_params import FoilGuesses
from veilcast.lab.experiment.manifest import describe_sweep, find_difference
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.user_inputs import check_user_files
from veilcast.lab.runs.foil.true_streams import draw_truth
from veilcast.lab.runs.foil.user_series import foil_user_series
from veilcast.lab.runs.table import ENGINES

HEAD = 'title = "t"\nclaim = "c"\nreading = "r"\nminutes = 1\nseeds = 2\n'


def write_as_graph(path: Path, nodes: int = 3000) -> None:
    """A scale-free graph such as that of autonomous systems: each later node has two links, by preference."""
    rng, ends, lines = random.Random(7), [0, 1], ["AS0 AS1"]
    for node in range(2, nodes):
        for other in sorted({rng.choice(ends) for _ in range(2)}):
            lines.append(f"AS{node} AS{other}")
            ends += [node, other]
    path.write_text("# made\n" + "\n".join(lines) + "\n")


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(HEAD + text)
    return file


def measure(file: Path, engine: str = "kernel") -> dict[tuple[str, str, float], float]:
    experiment = load_experiment(file)[1]
    cell = next(iter(experiment.make_cells(engine=engine)))
    found: list[Measure] = ENGINES[engine](cell.params, 0, None)
    return {(one.attack, one.metric, one.step): one.value for one in found}


def test_attackers_work_on_a_graph_like_the_internets_by_toml_alone(tmp_path: Path) -> None:
    write_as_graph(tmp_path / "as.txt")
    file = write(
        tmp_path,
        'kind = "mesh.epochs"\n[base]\ngraph = "file:as.txt"\ninsiders = 0.05\nsteps = [5]\n'
        'attacks = ["leaf", "group-testing", "first-spy"]\n',
    )
    assert [file.path for file in load_experiment(file)[1].user_files("kernel")] == [str(tmp_path / "as.txt")]
    found = measure(file)
    assert found["leaf", "auc", 5] > 0.95


def test_paths_are_relative_to_the_experiment_and_an_axis_can_have_several_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        write_as_graph(tmp_path / name, 50)
    file = write(tmp_path, 'kind = "mesh.flows"\n[axes]\ngraph = ["file:a.txt", "file:b.txt", "regular"]\n')
    cells = list(load_experiment(file)[1].make_cells())
    assert [cell.name for cell in cells] == ["graph=file:a.txt", "graph=file:b.txt", "graph=regular"]
    assert [file.path for cell in cells for file in cell.params.user_files()] == [
        str(tmp_path / "a.txt"),
        str(tmp_path / "b.txt"),
    ]
    assert definition.parse_experiment(file.read_bytes(), "x").folder == ""


def test_results_of_another_file_of_that_name_do_not_mix(tmp_path: Path) -> None:
    write_as_graph(tmp_path / "as.txt", 50)
    file = write(tmp_path, 'kind = "mesh.flows"\n[base]\ngraph = "file:as.txt"\n')
    means: dict[str, Any] = {"engine": "kernel", "quick": True, "folder": None, "command": ""}
    before = describe_sweep("mine", load_experiment(file)[1], **means)
    write_as_graph(tmp_path / "as.txt", 51)
    after = describe_sweep("mine", load_experiment(file)[1], **means)
    assert find_difference(before, before) == ""
    assert find_difference(before, after) == f"from another {tmp_path / 'as.txt'}"


def test_subscriptions_and_topics_of_ones_own(tmp_path: Path) -> None:
    write_as_graph(tmp_path / "as.txt", 60)
    (tmp_path / "subs.csv").write_text("".join(f"AS{node},{'ska' if node % 2 else 'pop'}\n" for node in range(40)))
    found = measure(
        write(
            tmp_path,
            'kind = "mesh.flows"\n[base]\ngraph = "file:as.txt"\nsubscriptions = "file:subs.csv"\ntopic = "ska"\n',
        )
    )
    assert found["", "reached", 0] == 1
    found = measure(
        write(
            tmp_path,
            'kind = "mesh.topics"\n[base]\ngraph = "file:as.txt"\nsubscriptions = "file:subs.csv"\n'
            "insiders = 0.2\nsteps = [2]\ntopics = 2\n",
        )
    )
    assert found
    found = measure(
        write(
            tmp_path,
            'kind = "relay.attacks"\n[base]\nrelay = "paper"\nsubscriptions = "file:subs.csv"\ntopics = 2\nnodes = 40\n'
            "steps = [2]\n",
        )
    )
    assert found


def test_latencies_of_ones_own_take_the_place_of_planetlab(tmp_path: Path) -> None:
    head = 'kind = "tree.delays"\n[base]\ntree = "paper"\ntimed = "subscribing"\nsteps = [4]\nnodes = 60\n'
    slow, fast = tmp_path / "slow.txt", tmp_path / "fast.txt"
    for path, ms in ((slow, 200), (fast, 2)):
        np.savetxt(path, np.full((5, 5), ms) - ms * np.eye(5), fmt="%g")
    took = [measure(write(tmp_path, f'{head}latencies = "file:{path.name}"\n'), "machines") for path in (slow, fast)]
    assert took[0].keys() == took[1].keys()
    assert all(took[0][key] > took[1][key] for key in took[0])


def test_a_series_of_any_length_is_foiled_and_its_place_on_the_disk_changes_nothing(tmp_path: Path) -> None:
    walk = np.round(50 + np.cumsum(np.random.default_rng(1).normal(0, 0.2, 777)), 1)
    text = "watt\n" + "\n".join(f"{value:.1f}" for value in walk) + "\n"
    found = []
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(text)
        file = write(
            tmp_path,
            f'kind = "foil.guesses"\n[base]\nfoil = "leaning"\ntruth = "file:{name}"\ncolumn = "watt"\n'
            "length = 100\nguessers = ['uniform', 'medoid']\n",
        )
        found.append(measure(file))
    assert found[0] == found[1]
    assert found[0]["uniform", "identified", 0] == pytest.approx(0.25, abs=0.05)
    params = FoilGuesses(foil="leaning", truth=f"file:{tmp_path / 'a.csv'}", length=100)
    streams = list(draw_truth(params, np.random.default_rng(0), None))
    assert len(streams) == 7
    assert {each.unit for each in streams} == {0.1}
    assert np.allclose(np.concatenate([each.values[0] for each in streams])[:100] * 0.1, walk[:100])
    with pytest.raises(ConfigError, match="no two parts of length 500"):
        list(draw_truth(FoilGuesses(foil="leaning", truth=params.truth, length=500), np.random.default_rng(0), None))


def test_series_on_the_command_line_take_the_place_of_real_prices(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    name, known = load_experiment("foil-default")
    changed = foil_user_series(name, known, file, "watt")
    assert {(cell.params.truth, cell.params.column) for cell in changed.make_cells()} == {(f"file:{file}", "watt")}  # type: ignore[attr-defined]
    assert changed.figures
    assert not changed.published
    name, known = load_experiment("foil-significant")
    changed = foil_user_series(name, known, file, "")
    assert [series.name for series in changed.series] == ["GOOG", "GBM"]
    assert {cell.params.truth for cell in changed.make_cells()} == {f"file:{file}", "gbm"}  # type: ignore[attr-defined]
    name, known = load_experiment("foil-million")
    assert {cell.params.truth for cell in foil_user_series(name, known, file, "").make_cells()} == {f"file:{file}"}  # type: ignore[attr-defined]
    for name, why in (("mesh-fig12", "foils no series"), ("foil-repairs", "replaces only some")):
        with pytest.raises(ConfigError, match=why):
            foil_user_series(name, load_experiment(name)[1], file, "")


def test_a_trace_of_ones_own_stands_in_an_experiment_and_files_from_before_still_load(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "sender,receiver,hours\n" + "".join(f"{n % 7},{7 + n % 5},{n}\n" for n in range(99))
    )
    file = write(tmp_path, 'kind = "brokers.shares"\n[base]\ntrace = "file:trace.csv"\nnodes = 20\n')
    assert measure(file)
    old = f'kind = "brokers.shares"\n[base]\nown_trace = "{tmp_path / "trace.csv"}"\nnodes = 20\n'
    assert [file.path for file in load_experiment(write(tmp_path, old))[1].user_files("kernel")] == [
        str(tmp_path / "trace.csv")
    ]


def test_faults_of_all_files_are_told_at_once_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "as.txt").write_text("a b\nb\n")
    (tmp_path / "subs.csv").write_text("a,ska\nzz,ska\n")
    (tmp_path / "good.txt").write_text("a b\nb c\n")
    file = write(
        tmp_path,
        'kind = "mesh.flows"\n[[series]]\nname = "1"\nparams = { graph = "file:as.txt" }\n[[series]]\nname = "2"\n'
        'params = { graph = "file:good.txt", subscriptions = "file:subs.csv", topic = "ska" }\n'
        '[[series]]\nname = "3"\nparams = { graph = "file:none.txt" }\n',
    )
    monkeypatch.setattr("veilcast.lab.spark.session", None)
    assert main(["lab", "run", str(file), "--out", str(tmp_path / "out"), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)["message"].splitlines()
    assert [line.removeprefix(f"{tmp_path}/").partition(":")[0] for line in told] == [
        "as.txt, line 2",
        "subs.csv, line 2",
        f"cannot read {tmp_path}/none.txt",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('kind = "mesh.flows"\nbase = { graph = "scalefree" }\n', "did you mean 'scale-free'"),
        ('kind = "mesh.flows"\nbase = { graph = 5 }\n', "base.graph: 5 is not a text"),
        ('kind = "mesh.flows"\nbase = { graph = "file:" }\n', "there is no 'file:'"),
        ('kind = "mesh.flows"\nbase = { subscriptions = "file:x" }\n', 'beside graph = "file:PATH"'),
        ('kind = "foil.guesses"\nbase = { foil = "noise", truth = "gogg" }\n', "did you mean 'goog'"),
        ('kind = "foil.guesses"\nbase = { foil = "noise", column = "a" }\n', 'column is for truth = "file:PATH"'),
        ('kind = "brokers.shares"\nbase = { trace = "facebok" }\n', "did you mean 'facebook'"),
    ],
)
def test_a_wrong_choice_is_told_with_the_names_and_the_file_form(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        load_experiment(write(tmp_path, text))
    assert fault in str(told.value)
    assert "\n" not in str(told.value)


def test_what_was_read_and_left_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "as.txt").write_text("a b\nb c\nb a\nx y\n")
    file = write(tmp_path, 'kind = "mesh.flows"\n[base]\ngraph = "file:as.txt"\n')
    assert check_user_files(load_experiment(file)[1].user_files("kernel")) == [
        f"{tmp_path}/as.txt: 5 nodes, 3 edges; 1 repeated edges were left out; "
        "2 nodes outside its largest component were left out"
    ]
