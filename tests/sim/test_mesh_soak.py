"""The soak of the mesh: the draws of its seeds, and meshes that hold."""

from __future__ import annotations

import json

import pytest

from veilcast.cli.main import main
from veilcast.sim.faults import SWARM_KINDS, Crash, Skew, Storm
from veilcast.sim.mesh import soak
from veilcast.sim.mesh.population import MeshPopulation

PLANS = [soak.SOAK.plan(seed).config for seed in range(200)]


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.all_only) for seed in range(4, 10)), 512, 622, 768, 896],
)  # The last four once failed.
def test_a_mesh_keeps_its_promises_under_faults(seed: int) -> None:
    outcome = soak.SOAK.run(seed)
    assert outcome.violations == ()
    assert outcome.deliveries > 0
    assert outcome.duration_us == soak.TIMES.duration_us


@pytest.mark.all_only
def test_seven_more_seeds_pass_and_have_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    """`veilcast sim soak --seeds 1000` is the heavy form."""
    assert main(["sim", "soak", "--seed", "38", "--seeds", "7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] == 7
    assert sorted(told["passed_by_variant"]) == sorted(f"soak {variant}" for variant in soak.VARIANTS)


def test_every_variant_and_every_kind_of_fault_comes_up() -> None:
    assert dict.fromkeys(sorted(plan.about for plan in PLANS)) == dict.fromkeys(sorted(soak.VARIANTS))
    faults = [fault for plan in PLANS for fault in plan.faults]
    kinds = [type(fault).__name__.lower() for fault in faults]
    storms = [fault.weather for fault in faults if isinstance(fault, Storm)]
    for kind in SWARM_KINDS:
        assert kind in kinds or any(getattr(weather, f"{kind}_ppm") for weather in storms)
    assert 350_000 < max(weather.loss_ppm for weather in storms) <= 400_000


def test_faults_leave_time_for_repair_and_who_crashes_starts_again() -> None:
    for plan in PLANS:
        for fault in plan.faults:
            if not isinstance(fault, Skew):
                assert fault.for_us is not None
                assert fault.at_us + fault.for_us <= soak.TIMES.calm_us
    assert any(isinstance(fault, Crash) for plan in PLANS for fault in plan.faults)


def test_a_plan_says_how_to_see_its_failure_again() -> None:
    assert soak.SOAK.plan(1234).command == "veilcast sim soak --seeds 1"


def test_each_mesh_has_a_forger_and_notes_that_are_owed() -> None:
    for plan in PLANS:
        population = plan.population
        assert isinstance(population, MeshPopulation)
        assert population.forgers == 1
        last_us = population.first_us + (population.notes - 1) * population.every_us
        assert soak.TIMES.calm_us < population.owed_us < last_us
        assert last_us + population.mesh.gap_us < soak.TIMES.duration_us
        assert population.mesh.defences.replay or population.mesh.seen_max < population.notes
