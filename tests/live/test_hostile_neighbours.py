"""Eight neighbours that send the worst they may prevent no delivery, and fill no table beyond its bound."""

from __future__ import annotations

import pytest

from support.hostile_neighbour import choose_hostile, make_hostile
from veilcast.lab.runs.mesh.loopback_network import DeliveryStats, LoopbackPopulation
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.sim.links import LinkDelays
from veilcast.sim.scenario import Scenario, ScenarioConfig, build_world
from veilcast.sim.wrappers import unwrap

SEED = 1
POPULATION = LoopbackPopulation(
    nodes=14,
    neighbours=12,
    rewire=0.0,
    subscribers=0.2,
    notes=60,
    first_us=45_000_000,
    every_us=200_000,
    mesh=MeshConfig(
        "hardened",
        heartbeat_us=500_000,
        hardening=HardeningConfig(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=8),
    ),
    link=LinkConfig("cells", 4),
    checks=("once", "order", "intact", "readers", "bounds", "everyone"),
)
DURATION_US = POPULATION.first_us + POPULATION.notes * POPULATION.every_us + 8_000_000


@pytest.mark.all_only
def test_eight_hostile_neighbours_cost_no_note_and_no_memory() -> None:
    tally = DeliveryStats(POPULATION, SEED)
    scenario = Scenario("hostile", ScenarioConfig("hostile", DURATION_US, POPULATION, LinkDelays((1_000,))))
    world = build_world(scenario, SEED, on_event=tally.record_event)
    victim, enemies = choose_hostile(POPULATION, SEED, 8)
    for number, enemy in enumerate(enemies):
        make_hostile(world.machine(enemy), victim, number)
    world.run(DURATION_US)
    world.finish()
    assert (tally.delivered, tally.repeated) == (tally.pairs, 0)
    refused = unwrap(world.machine(victim)).refused
    assert refused["ForgedError"] > 1000, "notes that had to be checked"
    assert refused["StaleError"] > 1000, "topics that nobody has"
    assert all(world.machine(enemy).inner.sent > 1000 for enemy in enemies)
