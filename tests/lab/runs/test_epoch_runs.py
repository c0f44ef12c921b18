"""Runs over epochs: what a mesh costs that is laid anew in each, hardened or not."""

from __future__ import annotations

from statistics import mean

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import Params
from veilcast.lab.runs.mesh.flows_model import run


def means(params: Params, seeds: int) -> dict[tuple[str, float], float]:
    runs = [{(found.metric, found.step): found.value for found in run(params, seed)} for seed in range(seeds)]
    return {key: mean(found[key] for found in runs if key in found) for key in runs[0]}


def over_epochs(**more: object) -> Params:
    return Params(degree=8, insiders=0.1, churn=0.1, look="epochs", steps=(2, 6), **more)  # type: ignore[arg-type]


def test_a_hardened_note_costs_under_four_times_the_baseline_and_comes_six_hops_later() -> None:
    plain, hidden = means(over_epochs(), 20), means(over_epochs(kappa=0.76), 20)
    assert plain["messages", 6] == pytest.approx(101, abs=3)
    assert hidden["messages", 6] < 4 * plain["messages", 6]
    assert hidden["hops", 6] - plain["hops", 6] == pytest.approx(6, abs=1)
    assert plain["reached", 6] == hidden["reached", 6] == 1


def test_publishers_wait_as_often_as_their_successors_are_away() -> None:
    hidden = means(Params(degree=8, churn=0.2, kappa=0.5, look="epochs", steps=(40,)), 20)
    assert hidden["waits", 40] == pytest.approx(0.2, abs=0.02)
    assert "waits" not in {metric for metric, _ in means(over_epochs(), 1)}


def test_covers_enlarge_the_mesh_of_every_epoch() -> None:
    assert means(over_epochs(cover="one", mu=0.6), 5)["overlay", 6] > 1.5 * means(over_epochs(), 5)["overlay", 6]


def test_the_same_run_gives_the_same_measures() -> None:
    assert run(over_epochs(kappa=0.5), 3) == run(over_epochs(kappa=0.5), 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kappa": 0.5},
        {"churn": 0.1},
        {"look": "epochs", "steps": (1.0,), "game": "swaps"},
        {"look": "epochs", "steps": (1.0,), "cover": "each"},
        {"look": "epochs", "steps": (1.0,), "cover": "one", "kappa": 0.5},
    ],
)
def test_what_is_not_for_epochs_is_refused_and_not_left_out(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="epochs"):
        run(Params(**wrong), 1)  # type: ignore[arg-type]
