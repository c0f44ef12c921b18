"""Names in an experiment's file are checked before its sweep: all faults at once, with the names that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment import definition, dry_run
from veilcast.lab.experiment.params import Measure
from veilcast.lab.runs.table import ENGINES

OWN = """
title = "mine"
kind = "mesh.flows"
claim = "covers help"
reading = "mine"
minutes = 0.1

[axes]
degree = [2, 4]

[[series]]
name = "BL"

[[series]]
name = "PF"
params = { cover = "one", mu = 0.7 }

[quick]
params = { nodes = 60 }

[[figures]]
name = "size"
title = "Size"
x = "degree"
x_label = "degree"
y_label = "nodes"
curves = [
  { label = "size", series = "PF", metric = "overlay" },
  { label = "right", series = "BL", attack = "leaf", metric = "accuracy_all" },
]
"""


def check(text: str) -> None:
    dry_run.check_drawn_metrics(
        "mine", definition.parse_experiment(text.encode(), "mine"), "kernel", ENGINES["kernel"], None
    )


def test_an_experiment_that_draws_what_its_runs_give_is_let_pass() -> None:
    check(OWN)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            '"overlay"',
            '"overlai"',
            "figures.size, size: there is no metric 'overlai'; there are .*did you mean 'overlay'",
        ),
        (
            '"accuracy_all"',
            '"accuracy"',
            "figures.size, right: of attack 'leaf' there is no metric 'accuracy'; there are",
        ),
        ('attack = "leaf"', 'attack = "mine"', "there is no attack 'mine'; there are leaf"),
    ],
)
def test_a_name_that_no_run_gives_is_refused_with_those_that_there_are(old: str, new: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check(OWN.replace(old, new))


def test_names_that_matrices_draw_are_checked_too() -> None:
    matrix = (
        '[[matrices]]\nname = "m"\ntitle = "M"\nattacks = ["leaf"]\nmetric = "auk"\ncosts = ["overlay", "weight"]\n'
    )
    with pytest.raises(ConfigError, match=r"matrices.m: of attack 'leaf' .*'auk'.*; matrices.m: .* metric 'weight'"):
        check(OWN + matrix)


def test_runs_end_when_every_name_is_known_and_are_bounded() -> None:
    """Each series once is enough here; of many cells the first ones are run, and an unknown name is let pass then."""
    ran: list[Any] = []

    def run(params: Any, seed: int, data: Path | None) -> list[Measure]:
        assert (seed, data, params.nodes) == (0, None, 60)
        ran.append(params)
        return [Measure("", "overlay", 0, 1.0), Measure("leaf", "accuracy_all", 0, 1.0)]

    dry_run.check_drawn_metrics("mine", definition.parse_experiment(OWN.encode(), "mine"), "kernel", run, None)
    assert len(ran) == 2
    ran.clear()
    many = OWN.replace("degree = [2, 4]", f"degree = {list(range(2, 56))}").replace('"overlay"', '"overlai"')
    dry_run.check_drawn_metrics("mine", definition.parse_experiment(many.encode(), "mine"), "kernel", run, None)
    assert len(ran) <= dry_run.CELLS_MAX


def test_all_faults_of_a_file_are_told_at_once() -> None:
    text = """
titel = "mine"
kind = "mesh.epochs"
base = { covr = "one", attacks = ["mine"], nodes = "many" }
axes = { degre = [2] }
engines = ["spark"]
[[figures]]
name = "size"
x_label = "degree"
curves = [{ label = "size", metrik = "overlay" }]
[machines]
params = { graph = "smallworld" }
"""
    with pytest.raises(ConfigError) as refused:
        definition.parse_experiment(text.encode(), "mine")
    told = str(refused.value)
    assert "\n" not in told
    for each in (
        "missing title, claim, minutes, reading",
        "there is no field 'titel'",
        "did you mean 'title'?",
        "base: there is no field 'covr'; there are attacks, ",
        "base.attacks: there is no attacker 'mine'; there are binned, ",
        "base.nodes: 'many' is not a whole number",
        "axes: there is no field 'degre'; there are attacks, ",
        "engines[0]: there is no 'spark'; there are kernel, live, machines",
        "figures[0]: missing title, x, y_label",
        "figures[0].curves[0]: missing metric",
        "figures[0].curves[0]: there is no field 'metrik'; there are ",
        "machines.params.graph: there is no 'smallworld'; there are ",
    ):
        assert each in told, each


def test_all_that_figures_name_and_the_experiment_lacks_is_told_at_once() -> None:
    text = OWN.replace('x = "degree"', 'x = "degre"').replace('series = "PF", metric', 'series = "FP", metric')
    with pytest.raises(ConfigError) as refused:
        definition.parse_experiment(text.encode(), "mine")
    assert str(refused.value) == (
        "experiment mine: figures.size: x: there is no axis 'degre'; there are degree, step; did you mean 'degree'?; "
        "figures.size, size: there is no series 'FP'; there are BL, PF"
    )
