"""All defences together: off by default, and no honest node suffers from them, whatever goes wrong on the links."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.mesh_network import SMALL_CONFIG, SingleNode
from support.message_strategies import messages
from veilcast.mesh.config import ALL_DEFENCES, Defences, MeshConfig
from veilcast.sim import scenario
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.wire import encode, pad
from veilcast.wire.mesh import Heartbeat

SWITCHES = ("anchors", "caps", "buckets", "replay", "epoch_tokens")
OTHERS = ("mesh-many", "mesh-hardened", "mesh-sybils")
MESHES = [name for name in scenario.packaged_names() if name.startswith("mesh-") and not name.startswith(OTHERS)]


def failures(name: str, defences: Defences, seeds: range) -> list[str]:
    """Failures in a scenario of the papers' mesh with all defences on. Excess is no failure."""
    loaded = scenario.load_scenario(name)
    population = loaded.config.population
    assert isinstance(population, MeshPopulation)
    mesh = msgspec.structs.replace(population.mesh, defences=defences)
    config = msgspec.structs.replace(loaded.config, population=msgspec.structs.replace(population, mesh=mesh))
    found = []
    for seed in seeds:
        world = scenario.build_world(scenario.Scenario(name, config), seed)
        world.run(config.duration_us)
        world.finish()
        machines: list[Any] = [world.machine(address) for address in population.addresses()]
        refused = sum(machine.refused["ExcessError"] for machine in machines if machine is not None)
        if refused:
            found.append(f"seed {seed}: {refused} honest messages were too many")
    return found


def test_every_switch_is_off_by_default_and_on_in_hardened() -> None:
    assert [getattr(MeshConfig().defences, switch) for switch in SWITCHES] == [False] * 5
    assert [getattr(ALL_DEFENCES, switch) for switch in SWITCHES] == [True] * 5
    assert sum(isinstance(value, bool) for value in msgspec.structs.asdict(ALL_DEFENCES).values()) == 5


@pytest.mark.parametrize("name", MESHES)
def test_the_scenarios_of_the_papers_mesh_pass_with_all_defences(name: str) -> None:
    assert failures(name, ALL_DEFENCES, range(1)) == []


@pytest.mark.all_only
@pytest.mark.parametrize("name", MESHES)
def test_three_more_seeds_of_each_pass_with_all_defences(name: str) -> None:
    assert failures(name, ALL_DEFENCES, range(1, 4)) == []


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_can_be_on_alone(switch: str) -> None:
    assert failures("mesh-storm", msgspec.structs.replace(Defences(), **{switch: True}), range(1)) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), messages().map(encode)), max_size=8))
def test_no_message_makes_a_hardened_node_raise(frames: list[tuple[str, int, bytes]]) -> None:
    config = msgspec.structs.replace(SMALL_CONFIG, defences=ALL_DEFENCES)
    bench = SingleNode("forwarder", "a b", config)
    for source, number, rider in frames:
        bench.feed(source, rider)
        if len(rider) < config.heartbeat_bytes - 40:
            bench.feed(source, pad(encode(Heartbeat(number * 10**8, (rider,))), config.heartbeat_bytes))
    bench.next_riders()
    assert bench.node.overlay.routes.tokens() == []
