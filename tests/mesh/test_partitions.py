"""Partitioned networks find one another again by probes, long before any lease ends."""

from __future__ import annotations

import pytest

from veilcast.mesh.config import CertifiedConfig, MeshConfig, ScampConfig
from veilcast.sim.graphs import is_connected
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World

SECOND_US = 1_000_000
PARTED_US = 120 * SECOND_US
HEALED_WITHIN = 30
"""Heartbeats after the partition ends; 2 to 6 were measured with forty nodes."""


def is_whole(population: MeshPopulation, world: World) -> bool:
    addresses = population.addresses()
    index = {address: number for number, address in enumerate(addresses)}
    return is_connected(
        len(addresses), [(index[u], index[v]) for u in addresses for v in world.machine(u).overlay.present_neighbours()]
    )


def heartbeats_to_heal(config: MeshConfig, seed: int, most: int = HEALED_WITHIN) -> int | None:
    """Heartbeats until all nodes are one network again; None if they are not by then."""
    population = MeshPopulation(nodes=24, notes=0, mesh=config, checks=())
    world = World(seed=seed, links=LinkDelays())
    population.populate(world, 0)
    world.run(45 * SECOND_US)
    assert is_whole(population, world)
    ours, theirs = population.addresses()[::2], population.addresses()[1::2]
    ways = [way for u in ours for v in theirs for way in ((u, v), (v, u))]
    for source, destination in ways:
        world.block(source, destination)
    world.run(PARTED_US)
    assert not is_whole(population, world)
    for source, destination in ways:
        world.unblock(source, destination)
    for beat in range(most):
        world.run(SECOND_US)
        if is_whole(population, world):
            return beat + 1
    return None


@pytest.mark.parametrize("seed", range(3))
def test_networks_partitioned_for_minutes_rejoin_within_thirty_heartbeats(seed: int) -> None:
    assert heartbeats_to_heal(scamp(ScampConfig()), seed) is not None


@pytest.mark.parametrize("seed", range(3))
def test_partitioned_networks_of_certified_members_rejoin_too(seed: int) -> None:
    assert heartbeats_to_heal(certified(CertifiedConfig(outbound=3)), seed) is not None


def test_without_probes_partitioned_networks_stay_apart_until_leases_end() -> None:
    assert heartbeats_to_heal(scamp(ScampConfig(probe_periods=0)), 0) is None


def scamp(rules: ScampConfig) -> MeshConfig:
    return MeshConfig(membership="scamp", neighbours_max=24, address_bytes_max=8, scamp=rules)


def certified(rules: CertifiedConfig) -> MeshConfig:
    return MeshConfig(membership="certified", neighbours_max=24, address_bytes_max=8, certified=rules)
