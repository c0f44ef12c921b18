"""Runs of one insider who prunes branches."""

from __future__ import annotations

from statistics import mean
from typing import Literal

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshPruning
from veilcast.lab.runs.mesh.pruning_model import run


def means(pruner: Literal["publisher", "subscriber"], degree: int, seeds: int) -> dict[tuple[str, str], float]:
    params = MeshPruning(pruner=pruner, degree=degree)
    runs = [{(found.attack, found.metric): found.value for found in run(params, seed)} for seed in range(seeds)]
    return {key: mean(found[key] for found in runs if key in found) for key in runs[0]}


def test_the_papers_insider_leaves_readers_the_sets_that_were_promised_and_one_with_a_clock_does_not() -> None:
    found = means("publisher", 8, 30)
    assert found["pruning", "below_promise"] == 0
    assert found["pruning-timed", "below_promise"] > 0.01
    assert found["pruning", "first_right"] < 0.3 < found["pruning-timed", "first_right"]
    assert found["pruning-timed", "auc"] > found["pruning", "auc"] + 0.03


def test_what_it_holds_likely_is_as_likely() -> None:
    found = means("publisher", 8, 30)
    for attack in ("pruning", "pruning-timed"):
        assert found[attack, "calibration"] < 1.3 * found[attack, "calibration_floor"]


def test_chain_values_of_all_neighbours_leave_a_publisher_fewer_than_were_promised() -> None:
    found = means("subscriber", 16, 30)
    assert found["pruning", "below_promise"] == 0
    assert found["pruning-chains", "below_promise"] > 0.5
    assert found["pruning-chains", "success"] > 5 * found["pruning", "success"] > 5 * found["pruning", "base"]


def test_where_nobody_subscribes_there_is_nothing_to_prune() -> None:
    with pytest.raises(ConfigError, match="prune"):
        run(MeshPruning(pruner="publisher", ratio=0.0), 1)


@pytest.mark.parametrize("pruner", ["publisher", "subscriber"])
def test_on_an_overlay_that_falls_apart_sets_are_of_those_who_are_reached(
    pruner: Literal["publisher", "subscriber"],
) -> None:
    found = run(MeshPruning(nodes=60, degree=2, rewire=0.5, ratio=0.4, pruner=pruner), 2)
    assert [each.value for each in found if (each.attack, each.metric) == ("pruning", "below_promise")] == [0.0]
