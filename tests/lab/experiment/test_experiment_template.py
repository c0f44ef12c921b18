"""`lab new` and `lab reference`: what is written can be run, and what is told comes from the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from veilcast.cli.main import main
from veilcast.errors import ConfigError
from veilcast.lab.experiment import definition, dry_run
from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.experiment.reference import describe_fields
from veilcast.lab.experiment.template import write_template
from veilcast.lab.runs.table import ENGINES


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_of_each_kind_is_an_experiment_with_every_parameter_in_it(kind: str) -> None:
    text = write_template(kind)
    experiment = definition.parse_experiment(text.encode(), kind)
    assert experiment.kind == kind
    assert list(experiment.make_cells(quick=True, engine=experiment.engines[0]))
    for field in describe_fields(KINDS[kind]):
        assert f"\n{field.name} = " in text or f"\n# {field.name} = " in text, field.name
    assert max(map(len, text.splitlines())) < 200


@pytest.mark.parametrize("kind", ["mesh.flows", "mesh.epochs", "foil.pairs", "brokers.path", "tree.costs"])
def test_a_template_draws_what_its_quick_runs_give(kind: str) -> None:
    check_curve(kind)


@pytest.mark.all_only
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "# It needs the data folder" not in write_template(kind)])
def test_the_template_of_each_kind_draws_what_its_quick_runs_give(kind: str) -> None:
    check_curve(kind)


def check_curve(kind: str) -> None:
    experiment = definition.parse_experiment(write_template(kind).encode(), kind)
    engine = experiment.engines[0]
    dry_run.check_drawn_metrics(kind, experiment, engine, ENGINES[engine], None)


def test_only_one_kind_needs_the_data_folder() -> None:
    assert [kind for kind in KINDS if "# It needs the data folder" in write_template(kind)] == ["tree.delays"]


def test_an_unknown_kind_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mesh\.epoch"):
        write_template("mesh.epoch")
    for verb in ("new", "reference"):
        assert main(["lab", verb, "mesh.epoch"]) == 3
        error = capsys.readouterr().err
        assert "did you mean 'mesh.epochs'" in error
        assert error.count("\n") == 1


def test_new_writes_a_file_and_never_over_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert main(["lab", "new", "mesh.flows", "-o", str(file)]) == 0
    assert f"veilcast lab run {file} --quick" in capsys.readouterr().out
    assert file.read_text() == write_template("mesh.flows")
    assert main(["lab", "new", "mesh.flows", "-o", str(file)]) == 4
    assert "is there already" in capsys.readouterr().err
    assert main(["lab", "new", "mesh.flows", "-o", str(tmp_path / "mine.txt")]) == 3
    assert main(["lab", "new", "mesh.flows"]) == 0
    assert capsys.readouterr().out.endswith(write_template("mesh.flows"))


def test_show_prints_the_file_and_its_parsed_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "show", "mesh-attacks"]) == 0
    assert capsys.readouterr().out == definition.read_experiment("mesh-attacks")
    assert main(["lab", "show", "mesh-attacks", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    experiment = definition.load_experiment("mesh-attacks")[1]
    assert shown["engines"] == list(experiment.engines)
    assert [each["name"] for each in shown["series"]] == [each.name for each in experiment.series]
    assert all(each["parameters"]["kind"] == each["kind"] == "mesh.epochs" for each in shown["series"])
    assert {"leaf", "group-testing"} <= {name for each in shown["series"] for name in each["attackers"]}
    assert "auc" in shown["metrics"]
    assert len(shown["published"]) == len(experiment.published)
    assert main(["lab", "show", "mesh-fig99"]) == 3


def test_reference_tells_kinds_parameters_attackers_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "reference", "--json"]) == 0
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)["kinds"]] == list(KINDS)
    assert main(["lab", "reference", "mesh.epochs", "--json"]) == 0
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["parameters"]}
    assert list(told) == list(KINDS["mesh.epochs"].__struct_fields__)
    assert (told["steps"]["required"], told["nodes"]["default"]) == (True, "500")
    assert told["churn"]["meaning"] == "The share of honest nodes that are away in an epoch."
    for what, word in (("attackers", "group-testing"), ("metrics", "auc"), ("mesh.flows", "small-world")):
        assert main(["lab", "reference", what]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(word in line for line in lines)
        assert max(map(len, lines)) <= 100


def test_all_missing_and_unknown_fields_are_told_at_once_with_the_nearest_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('kind = "mesh.epochs"\ntitel = "t"\n[base]\nnods = 5\nattacks = ["leef"]\n[quick]\nseed = 1\n')
    assert main(["lab", "run", str(file)]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for told in (
        "missing title, claim, minutes, reading",
        "did you mean 'title'",
        "did you mean 'nodes'",
        "did you mean 'seeds'",
        "did you mean 'leaf'",
    ):
        assert told in error
