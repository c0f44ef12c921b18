"""The overview shows the strongest attacker of each adversary, beside chance, and nothing that was not measured."""

from __future__ import annotations

import re

import pytest

from support import sample_results
from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import load_experiment, packaged_names, parse_experiment
from veilcast.lab.report.overview import find_cells, render_overview
from veilcast.lab.report.results import StoredResult

OVERVIEW = """
[[overview]]
mode = "mesh"
profile = "paper"
adversary = "global observer"
asks = "who subscribes"
measure = "accuracy"
attacks = ["majority", "leaf"]
metric = "accuracy_all"
chance = 0.5
series = "BL"
at = { degree = 16 }

[[overview]]
mode = "mesh"
profile = "hardened"
adversary = "insiders"
asks = "who subscribes"
measure = "accuracy"
attacks = ["nobody"]
metric = "accuracy_all"
chance = 0.5
series = "PF"
at = { degree = 16 }
"""


def result(text: str = OVERVIEW, **changes: object) -> StoredResult:
    experiment = parse_experiment((sample_results.DEGREES + text).encode(), "mesh-degrees")
    return sample_results.make_result("mesh-degrees", experiment, **changes)


def test_a_cell_is_the_strongest_of_the_attackers_that_gave_a_score() -> None:
    (cell,) = find_cells(result())
    assert cell.attack == "leaf"
    assert cell.score.value == result().scores.steps("BL degree=16", "leaf", "accuracy_all")[0.0].value
    assert cell.level == 6
    page = render_overview([result()])
    assert page.count("<td") == 1
    assert "insiders" not in page
    assert 'href="#mesh-degrees"' in page


def test_a_result_that_does_not_count_is_not_in_the_overview() -> None:
    assert render_overview([result(quick=True)]) == ""
    assert render_overview([sample_results.make_result("x", sample_results.make_experiments()["mesh-games"])]) == ""


def test_an_entry_about_no_cell_is_refused() -> None:
    with pytest.raises(ConfigError, match="overview of mesh, paper: 0 cells are so, not one"):
        result(OVERVIEW.replace("degree = 16", "degree = 17", 1))


def test_packaged_experiments_put_each_question_into_one_cell() -> None:
    named = [entry for name in packaged_names() for entry in load_experiment(name)[1].overview]
    cells = [(each.mode, each.profile, each.adversary, each.asks) for each in named]
    assert len(set(cells)) == len(cells)
    assert {each.mode for each in named} >= {"mesh", "relay", "tree", "foil"}
    for entry in named:
        twin = "hardened" if entry.profile == "paper" else "paper"
        assert (entry.mode, twin, entry.adversary, entry.asks) in cells
        assert re.fullmatch(r"[^.]+", entry.asks)
