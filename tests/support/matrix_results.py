"""A plausible result with matrices, for the tests of the decision page: six defences and their attackers."""

from __future__ import annotations

from typing import Any

from support import sample_results
from veilcast.lab.experiment.definition import Experiment, parse_experiment
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.verdicts import Score, ScoreTable
from veilcast.lab.report.results import StoredResult

TOML = b"""
title = "Defences against attackers"
kind = "mesh.epochs"
claim = "Only the hardened mesh hides readers from insiders."
reading = "Ours."
minutes = 20
base = { churn = 0.1, steps = [1, 5, 20, 50] }
axes = { degree = [4, 8, 16], insiders = [0.01, 0.05, 0.1] }
series = [
  { name = "BL" },
  { name = "PF fresh", params = { cover = "one", mu = 0.6 } },
  { name = "PF sticky", params = { cover = "one", mu = 0.6 } },
  { name = "SG" },
  { name = "PFSG", params = { cover = "one", mu = 0.6 } },
  { name = "H", params = { kappa = 0.78 } },
]

[[matrices]]
name = "inside"
title = "Readers, sought by insiders"
attacks = ["group-testing", "linear", "binned", "handed"]
costs = ["messages", "hops", "bytes"]
at = { degree = 8, insiders = 0.1 }

[[matrices]]
name = "outside"
title = "Readers, sought by who sees all wires"
attacks = [
  "leaf", "majority", "persistence", "closure", "centrality", "intersection", "late-join", "survivor",
]
costs = ["messages", "hops"]
at = { degree = 8, step = 20 }

[[matrices]]
name = "publishers"
title = "The publisher, sought by insiders"
attacks = ["first-spy", "trilateration", "predecessor", "presence"]
metric = "success"
over = "base"
chance = 1.0
certain = 200.0
"""
NAME = "mesh-attacks"
COSTS = {"messages": (101, 289, 289, 101, 289, 373), "hops": (3.9, 4.4, 4.4, 6.0, 7.5, 9.9), "bytes": (2e4,) * 6}


def make_experiment() -> Experiment:
    return parse_experiment(TOML, NAME)


def make_result(**changes: Any) -> StoredResult:
    return StoredResult(
        NAME,
        make_experiment(),
        sample_results.make_manifest(NAME, make_experiment(), **changes),
        ScoreTable(make_scores()),
        (),
    )


def make_scores() -> list[Score]:
    rows = []
    defences = [series.name for series in make_experiment().series]
    for cell in make_experiment().make_cells():
        place = defences.index(cell.series)
        assert isinstance(cell.params, MeshEpochs)
        for step in cell.params.steps:
            grown = round(1 - 0.8 ** (step * cell.params.insiders * 10), 3)
            for number, attack in enumerate(["group-testing", "linear", "binned"]):
                best = 0.55 if cell.series == "H" else 0.93
                rows.append(_score(cell.name, attack, "auc", step, 0.5 + (best - 0.5) * grown - 0.01 * number))
            if cell.series in ("SG", "PFSG"):
                rows.append(_score(cell.name, "handed", "auc", step, 0.5 + 0.49 * grown))
            for number, attack in enumerate(make_experiment().matrices[1].attacks):
                value = 0.5 if cell.series == "H" else 0.95 - 0.03 * place - 0.04 * number
                rows.append(_score(cell.name, attack, "auc", step, value))
            for number, attack in enumerate(make_experiment().matrices[2].attacks):
                rows.append(_score(cell.name, attack, "base", step, 1 / 450))
                value = cell.params.insiders * 1.2 if cell.series == "H" else 0.7 - 0.1 * number
                rows.append(_score(cell.name, attack, "success", step, value))
            rows += [_score(cell.name, "", metric, step, values[place]) for metric, values in COSTS.items()]
    return rows


def _score(cell: str, attack: str, metric: str, step: float, value: float) -> Score:
    return Score(cell, attack, metric, step, value, value - 0.005, value + 0.005, 30)
