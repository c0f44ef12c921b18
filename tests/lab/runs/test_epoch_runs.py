"""Runs over epochs: what a mesh costs that is laid anew in each, hardened or not."""

from __future__ import annotations

from statistics import mean

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.runs.mesh.epochs_model import run


def means(params: MeshEpochs, seeds: int) -> dict[tuple[str, float], float]:
    runs = [{(found.metric, found.step): found.value for found in run(params, seed)} for seed in range(seeds)]
    return {key: mean(found[key] for found in runs if key in found) for key in runs[0]}


def over_epochs(**more: object) -> MeshEpochs:
    return MeshEpochs(degree=8, insiders=0.1, churn=0.1, steps=(2, 6), **more)  # type: ignore[arg-type]


def test_a_hardened_note_costs_under_four_times_the_baseline_and_comes_six_hops_later() -> None:
    plain, hidden = means(over_epochs(), 20), means(over_epochs(kappa=0.76), 20)
    assert plain["messages", 6] == pytest.approx(101, abs=3)
    assert hidden["messages", 6] < 4 * plain["messages", 6]
    assert hidden["hops", 6] - plain["hops", 6] == pytest.approx(6, abs=1)
    assert plain["reached", 6] == hidden["reached", 6] == 1


def test_publishers_wait_as_often_as_their_successors_are_away() -> None:
    hidden = means(MeshEpochs(degree=8, churn=0.2, kappa=0.5, steps=(40,)), 20)
    assert hidden["waits", 40] == pytest.approx(0.2, abs=0.02)
    assert "waits" not in {metric for metric, _ in means(over_epochs(), 1)}


def test_covers_enlarge_the_mesh_of_every_epoch() -> None:
    assert means(over_epochs(cover="one", mu=0.6), 5)["overlay", 6] > 1.5 * means(over_epochs(), 5)["overlay", 6]


def test_the_same_run_gives_the_same_measures() -> None:
    assert run(over_epochs(kappa=0.5), 3) == run(over_epochs(kappa=0.5), 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cover": "one", "kappa": 0.5},
        {"games": 4.0, "kappa": 0.5},
        {"origin": "fresh", "kappa": 0.5},
        {"steady": False},
        {"hold": 2},
    ],
)
def test_defences_that_exclude_one_another_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="hardened mesh"):
        MeshEpochs(steps=(1.0,), **wrong)  # type: ignore[arg-type]
