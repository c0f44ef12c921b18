"""Eight neighbours that send the worst they may keep nobody from anything, and fill no table beyond its bound."""

from __future__ import annotations

import pytest

from support.enemies import cast_enemies, corrupt
from veilcast.lab.live.tally import Tally
from veilcast.lab.live.town import TownMesh
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import Config, Hardening
from veilcast.sim.adversaries import innermost
from veilcast.sim.links import Links
from veilcast.sim.scenario import Config as ScenarioConfig
from veilcast.sim.scenario import Scenario, build

SEED = 1
POPULATION = TownMesh(
    nodes=14,
    neighbours=12,
    rewire=0.0,
    subscribers=0.2,
    notes=60,
    first_us=45_000_000,
    every_us=200_000,
    mesh=Config(
        "hardened",
        heartbeat_us=500_000,
        hardening=Hardening(window_periods=16, lead_periods=48, bit_periods=2, uptime_periods=8),
    ),
    link=LinkConfig("cells", 4),
    checks=("once", "order", "intact", "readers", "bounds", "everyone"),
)
DURATION_US = POPULATION.first_us + POPULATION.notes * POPULATION.every_us + 8_000_000


@pytest.mark.all_only
def test_eight_hostile_neighbours_cost_no_note_and_no_memory() -> None:
    tally = Tally(POPULATION, SEED)
    scenario = Scenario("hostile", ScenarioConfig("hostile", DURATION_US, POPULATION, Links((1_000,))))
    world = build(scenario, SEED, on_event=tally.take)
    victim, enemies = cast_enemies(POPULATION, SEED, 8)
    for number, enemy in enumerate(enemies):
        corrupt(world.machine(enemy), victim, number)
    world.run(DURATION_US)
    world.finish()
    assert (tally.delivered, tally.repeated) == (tally.pairs, 0)
    refused = innermost(world.machine(victim)).refused
    assert refused["ForgedError"] > 1000, "notes that had to be checked"
    assert refused["StaleError"] > 1000, "topics that nobody has"
    assert all(world.machine(enemy).inner.sent > 1000 for enemy in enemies)
