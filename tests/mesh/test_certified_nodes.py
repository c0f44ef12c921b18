"""Mesh nodes among certified members, with heartbeats, in the simulator."""

from __future__ import annotations

import pytest

from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD
from veilcast.mesh.neighbour_record import read_neighbour_record
from veilcast.sim import scenario


@pytest.mark.parametrize("seed", range(3))
def test_notifications_reach_all_certified_members_despite_crashes_and_restarts(seed: int) -> None:
    assert scenario.run_scenario(scenario.load_scenario("mesh-certified"), seed).violations == ()


def test_a_node_that_starts_again_finds_its_anchors_on_its_disk() -> None:
    loaded = scenario.load_scenario("mesh-certified")
    world = scenario.build_world(loaded, 0)
    world.run(25_000_000)
    name = loaded.config.population.addresses()[5]
    chosen = world.machine(name).neighbourhood.slots.chosen()
    anchors = read_neighbour_record((world._hosts[name].disk or {})[NEIGHBOUR_RECORD]).anchors
    world.crash(name)
    world.restart(name)
    assert anchors
    assert set(anchors) <= set(chosen)
    world.run(15_000_000)
    assert set(anchors) & set(world.machine(name).neighbourhood.slots.chosen())
