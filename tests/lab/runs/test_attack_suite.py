"""All attackers of a run together: what each step may know, what is refused, and the numbers that must hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import Inside, MeshEpochs, Outside, Source
from veilcast.lab.experiment.plan import SEEDS_MAX
from veilcast.lab.models.epochs import Population
from veilcast.lab.runs.mesh import coalition_training
from veilcast.lab.runs.mesh.epoch_setup import settle_people
from veilcast.lab.runs.mesh.epochs_model import run

ALL = (*get_args(Outside), *get_args(Inside), *get_args(Source))
SMALL = MeshEpochs(nodes=150, degree=6, insiders=0.1, churn=0.1, steps=(1, 4, 10), pace="beats", attacks=ALL)
SHOWN = msgspec.structs.replace(SMALL, cover="one", mu=0.6, covers="variable", games=2.0)
HIDDEN = msgspec.structs.replace(SMALL, kappa=0.7)


@pytest.fixture(autouse=True)
def few_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """To learn from; enough to learn something."""
    monkeypatch.setattr(coalition_training, "_NETWORKS", 6)


@cache
def measured(params: MeshEpochs, seed: int = 2) -> dict[tuple[str, str, float], float]:
    return {(found.attack, found.metric, found.step): found.value for found in run(params, seed)}


@pytest.mark.parametrize("params", [SHOWN, HIDDEN], ids=["PFSG", "H"])
def test_every_attacker_is_judged_at_every_step(params: MeshEpochs) -> None:
    found = measured(params)
    for attack in ALL:
        metric = "success" if attack in get_args(Source) else "auc"
        assert all((attack, metric, step) in found for step in params.steps)
    assert all(np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("params", [SHOWN, HIDDEN], ids=["PFSG", "H"])
def test_what_is_reached_by_a_step_does_not_depend_on_what_comes_after(params: MeshEpochs) -> None:
    """But for those who look closely at each step, and so at fewer meshes where there are fewer."""
    whole, short = measured(params), measured(msgspec.structs.replace(params, steps=(4,)))
    for (attack, metric, step), value in short.items():
        if attack not in ("roots", "rumor"):
            assert whole[attack, metric, step] == pytest.approx(value), (attack, metric)


def test_a_run_does_not_depend_on_what_its_process_has_learned_before() -> None:
    before = run(SHOWN, 3)
    coalition_training._train_classifiers.cache_clear()
    assert run(SHOWN, 3) == before


def test_classifiers_learn_from_worlds_that_no_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(params: MeshEpochs, seed: int, data: Path | None) -> Population:
        seeds.append(seed)
        return settle_people(params, seed, data)

    monkeypatch.setattr(coalition_training, "settle_people", noted)
    coalition_training._train_classifiers.cache_clear()
    run(msgspec.structs.replace(SMALL, attacks=("linear",), steps=(2,)), 5)
    assert seeds == [SEEDS_MAX + number for number in range(6)]


def test_where_the_data_say_who_subscribes_they_are_not_learned_from() -> None:
    params = MeshEpochs(graph="deezer", topic="Metal", steps=(1,), attacks=("linear",), insiders=0.1)
    people = settle_people(SMALL, 1, None)
    learned = coalition_training._training_params(params, people)
    assert learned.topic == ""
    assert learned.ratio == pytest.approx(0.1)


def test_the_papers_mesh_gives_everything_away_and_the_hardened_one_little() -> None:
    """Both controls."""
    attacks = (*get_args(Outside), "group-testing", "trilateration", "flow-source")
    plain = msgspec.structs.replace(SMALL, nodes=300, attacks=attacks)
    hidden = msgspec.structs.replace(plain, kappa=0.8)
    shown, silent = (
        {key: np.mean([measured(params, seed)[key] for seed in range(5)]) for key in measured(params, 0)}
        for params in (plain, hidden)
    )
    assert shown["closure", "auc", 10] > 0.99
    assert shown["closure", "certain_precision", 1] == 1
    assert shown["group-testing", "auc", 10] > 0.75
    assert shown["trilateration", "success", 1] == 1
    assert shown["trilateration", "disclosed", 10] == 1
    assert shown["flow-source", "success", 10] == 1
    for attack in get_args(Outside):
        assert silent[attack, "auc", 10] == pytest.approx(0.5, abs=0.08)
    assert silent["group-testing", "auc", 10] < 0.65
    assert silent["trilateration", "success", 10] < 0.5
    assert silent["flow-source", "success", 10] < 0.05


def test_anonymity_sets_shrink_with_every_epoch_of_the_papers_mesh() -> None:
    found = measured(msgspec.structs.replace(SMALL, nodes=300, attacks=("closure",)), 0)
    sizes = [found["closure", "set_mean", step] for step in SMALL.steps]
    assert sizes == sorted(sizes, reverse=True)
    assert found["closure", "bits", 10] > found["closure", "bits", 1] > 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"insiders": 0.0, "attacks": ("group-testing",)}, "insiders above 0"),
        ({"insiders": 0.0, "attacks": ("first-spy",)}, "insiders above 0"),
        ({"origin": "fresh", "attacks": ("flow-source",)}, "no publisher"),
    ],
)
def test_attacks_that_have_nothing_to_see_or_to_find_are_refused(more: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        run(msgspec.structs.replace(SMALL, **more), 1)


def test_attacks_are_named_once_each() -> None:
    with pytest.raises(ConfigError, match="once"):
        MeshEpochs(steps=(1,), attacks=("leaf", "leaf"))
