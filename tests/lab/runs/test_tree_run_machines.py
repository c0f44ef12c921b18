"""Kernels of trees against the machines themselves, on trees that each draws: the same publications cost the same."""

from __future__ import annotations

from statistics import mean
from typing import Literal

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.tree_params import TreeCosts
from veilcast.lab.runs.table import ENGINES


def cost(engine: str, seeds: int, routing: Literal["trees", "seen"]) -> float:
    params = TreeCosts(tree="paper", nodes=30, readers=3, publications=20, routing=routing)
    found = [one.value for seed in range(seeds) for one in ENGINES[engine](params, seed, None) if one.metric == METRIC]
    return mean(found)


METRIC = "messages"


@pytest.mark.parametrize(("routing", "within"), [("trees", 0.08), ("seen", 0.25)])
def test_a_publication_costs_on_machines_what_the_kernels_say(routing: Literal["trees", "seen"], within: float) -> None:
    assert cost("machines", 1, routing) == pytest.approx(cost("kernel", 60, routing), rel=within)


def test_machines_are_asked_what_the_papers_trees_cost_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match="the paper's trees"):
        ENGINES["machines"](TreeCosts(tree="hardened", nodes=30), 1, None)
    with pytest.raises(ConfigError, match="insiders"):
        make_params("tree.costs", {"tree": "paper", "nodes": 30, "insiders": 0.1})
