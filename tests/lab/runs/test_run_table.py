"""Both engines under small parameters: the same names, the same run from the same seed, and numbers that must hold.

That the two agree at P0's size is in `tests/papers`; how near the kernels are to P0 is what the experiments say.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import load_experiment, packaged_names
from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.experiment.mesh_params import MeshEpochs, MeshFlows, MeshPruning
from veilcast.lab.experiment.params import Measure
from veilcast.lab.runs.stored_attack_task import STORED_ATTACKS, find_stored_attack
from veilcast.lab.runs.table import ENGINES, KEPT_TABLES, RUNS, WITHOUT_TABLES, find_run, list_kept_tables

BOTH = ("kernel", "machines")
SMALL = MeshFlows(nodes=40, ratio=0.2)
OVER_EPOCHS = MeshEpochs(nodes=40, ratio=0.2, steps=(1,))
GAME = msgspec.structs.replace(SMALL, game="events", start="wait", look="swaps", steps=(20, 60))
COVERED = msgspec.structs.replace(SMALL, cover="one", mu=0.6, publications=3)


@cache
def run(engine: str, params: MeshFlows, seed: int = 5) -> list[Measure]:
    return ENGINES[engine](params, seed, None)


def value(measures: list[Measure], attack: str, metric: str, step: float = 0) -> float:
    [found] = [one.value for one in measures if (one.attack, one.metric, one.step) == (attack, metric, step)]
    return found


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("params", [SMALL, COVERED, GAME], ids=["BL", "PF", "SG"])
def test_a_run_is_a_function_of_its_parameters_and_seed(engine: str, params: MeshFlows) -> None:
    assert ENGINES[engine](params, 5, None) == run(engine, params)
    assert ENGINES[engine](params, 6, None) != run(engine, params)


@pytest.mark.parametrize("params", [SMALL, COVERED, GAME], ids=["BL", "PF", "SG"])
def test_both_engines_measure_the_same(params: MeshFlows) -> None:
    kernel, machines = (
        {(one.attack, one.metric, one.step) for one in run(engine, params)} for engine in ("kernel", "machines")
    )
    assert machines == kernel - {("", "swap_messages", step) for step in params.steps}


@pytest.mark.parametrize("engine", BOTH)
def test_without_defence_all_leaves_subscribe(engine: str) -> None:
    found = run(engine, SMALL)
    assert value(found, "leaf", "leaf_precision") == 1
    assert value(found, "", "reached") == 1
    assert value(found, "", "messages") == value(found, "", "overlay") - 1


@pytest.mark.parametrize("engine", BOTH)
def test_a_game_moves_nobody_out_of_the_mesh_and_subscribers_off_the_leaves(engine: str) -> None:
    found = run(engine, GAME)
    assert value(found, "", "overlay", 20) == value(found, "", "overlay", 60)
    assert 60 <= value(found, "", "swaps", 60) <= 63
    assert value(found, "leaf", "leaf_precision", 60) < 1


def test_the_machines_mesh_on_the_wires_is_the_one_that_stands() -> None:
    """Where nobody comes to play, a stop of the world shows what a publication does."""
    idle = {(one.attack, one.metric): one.value for one in run("machines", msgspec.structs.replace(GAME, wait_s=1e6))}
    seen = {(one.attack, one.metric): one.value for one in run("machines", SMALL)}
    assert idle == seen | {("", "swaps"): 0, ("", "seconds"): 0} | {("", "messages_total"): idle["", "messages_total"]}


def test_variable_covers_fall_away_and_fixed_ones_do_not() -> None:
    fixed = msgspec.structs.replace(SMALL, nodes=500, cover="one", mu=0.7, publications=12)
    variable = msgspec.structs.replace(fixed, covers="variable")
    bare = value(run("kernel", MeshFlows(nodes=500, ratio=0.2)), "leaf", "accuracy_all")
    assert value(run("kernel", variable), "persistent-links", "accuracy_all") == pytest.approx(bare, abs=0.01)
    assert value(run("kernel", fixed), "persistent-links", "accuracy_all") == value(
        run("kernel", fixed), "leaf", "accuracy_all"
    )


@pytest.mark.parametrize("engine", BOTH)
def test_an_overlay_that_falls_apart_is_run_and_told(engine: str) -> None:
    thin = msgspec.structs.replace(SMALL, degree=2, rewire=0.5)
    found = [value(run(engine, thin, seed), "", "reached") for seed in range(4)]
    assert min(found) < 1


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        ("machines", {"ties": "first"}),
        ("machines", {"look": "swaps", "steps": (1,)}),
        ("machines", {"game": "swaps", "look": "seconds", "steps": (1,)}),
        ("machines", {"game": "events", "look": "rounds", "steps": (1,)}),
        ("machines", {"nodes": 200, "degree": 70}),
        ("kernel", {"look": "swaps", "steps": (1,)}),
        ("kernel", {"game": "swaps", "look": "seconds", "steps": (1,)}),
        ("kernel", {"game": "events", "look": "publications", "steps": (1,)}),
    ],
)
def test_what_an_engine_cannot_run_it_refuses(engine: str, change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        run(engine, msgspec.structs.replace(SMALL, **change))


@pytest.mark.parametrize("change", [{"cover": "one"}, {"attacks": ("leaf",)}])
def test_what_the_machines_cannot_run_over_epochs_they_refuse(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ENGINES["machines"](msgspec.structs.replace(OVER_EPOCHS, **change), 5, None)


def test_every_kind_has_a_run_and_every_run_a_function() -> None:
    assert RUNS.keys() == KINDS.keys()
    for runs in RUNS.values():
        assert runs
        assert set(runs) <= set(ENGINES)
        for name in runs.values():
            assert callable(find_run(name))


def test_an_engine_that_a_kind_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match=r"mesh\.pruning are made by kernel, not by machines"):
        ENGINES["machines"](MeshPruning(pruner="publisher"), 1, None)


def test_packaged_experiments_name_engines_that_their_kinds_have() -> None:
    for name in packaged_names():
        experiment = load_experiment(name)[1]
        for engine in experiment.engines:
            assert all(engine in RUNS[cell.params.kind()] for cell in experiment.make_cells(engine=engine)), name


def test_every_kind_of_run_gives_tables_or_says_why_not() -> None:
    assert set(KEPT_TABLES) | set(WITHOUT_TABLES) == set(RUNS)
    assert not set(KEPT_TABLES) & set(WITHOUT_TABLES)


def test_every_kind_that_keeps_guesses_of_a_model_can_be_attacked_again() -> None:
    kept = {kind for kind in KEPT_TABLES if {"guesses", "stream_guesses"} & set(list_kept_tables(kind, "kernel"))}
    assert kept == {kind for kind, engines in STORED_ATTACKS.items() if "kernel" in engines}
    for kind, engines in STORED_ATTACKS.items():
        for engine in engines:
            found = find_stored_attack(kind, engine)
            assert callable(found.attack_tables)
            assert callable(found.measure_guesses)
