"""Sybils against the mesh: their links with certified membership, and with SCAMP."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from veilcast.errors import ConfigError
from veilcast.mesh.config import MeshConfig, NeighbourhoodKind
from veilcast.sim import scenario
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.mesh.sybils import SybilPopulation
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def attack(honest: int, membership: NeighbourhoodKind, seed: int, lures: bool = False) -> ScenarioOutcome:
    """Four Sybils for each honest node, one in sixteen of them with a stolen key, as in the packaged scenario."""
    packaged = scenario.load_scenario("mesh-sybils").config
    population = packaged.population
    assert isinstance(population, SybilPopulation)
    change = msgspec.structs.replace
    mesh = change(population.honest.mesh, membership=membership)
    smaller = change(
        population,
        honest=change(population.honest, nodes=honest, prefixes=max(10, honest // 4), contacts=3, mesh=mesh),
        sybils=4 * honest,
        stolen=honest // 4,
        lures=lures,
    )
    return scenario.run_scenario(Scenario("sybils", change(packaged, population=smaller)), seed)


def test_certified_members_stay_connected_and_deliver_among_four_times_as_many_sybils() -> None:
    outcome = attack(32, "certified", 0)
    assert outcome.violations == ()
    assert outcome.facts["links to uncertified"] == 0
    assert outcome.facts["eclipsed"] == 0


def test_the_same_sybils_take_scamp_over() -> None:
    outcome = attack(60, "scamp", 0)
    assert outcome.violations
    assert outcome.facts["links to uncertified"] > 5 * outcome.facts["links to honest"]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_hold_out_against_four_hundred(seed: int) -> None:
    outcome = attack(100, "certified", seed)
    assert outcome.violations == ()
    assert outcome.facts["links to uncertified"] == 0
    assert outcome.facts["eclipsed"] == 0


@pytest.mark.heavy
def test_thieves_who_pass_adverts_on_and_drop_notes_cost_some_but_not_most() -> None:
    """Nothing here finds them out: a known limit."""
    outcome = attack(100, "certified", 1, lures=True)
    assert 30 * 5 // 2 < outcome.deliveries < 30 * 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"stolen": 401},
        {"stolen": -1},
        {"attack_us": -1},
        {"knocks": -1},
        {"prefixes": 0},
        {"honest": MeshPopulation(mesh=MeshConfig())},
    ],
)
def test_an_impossible_attack_is_refused(wrong: dict[str, Any]) -> None:
    honest = MeshPopulation(mesh=MeshConfig(membership="certified"))
    with pytest.raises(ConfigError):
        SybilPopulation(**({"honest": honest} | wrong))


def test_honest_nodes_in_a_forgers_hands_are_counted_like_others() -> None:
    honest = MeshPopulation(
        nodes=6, notes=0, forgers=1, mesh=MeshConfig(neighbours_max=20, address_bytes_max=8, membership="certified")
    )
    config = scenario.ScenarioConfig("x", 2_000_000, SybilPopulation(honest, sybils=1, stolen=1))
    assert scenario.run_scenario(Scenario("x", config), 1).facts["eclipsed"] <= 6
