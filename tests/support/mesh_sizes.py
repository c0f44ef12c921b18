"""Sizes of meshes: P0's experiment with the real machines, one number for each seed."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from veilcast.mesh.config import CoverConfig, MeshConfig
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World

PERIOD_US = 1_000_000
COVER_DELAY_US = 12 * PERIOD_US
"""Longer than a mesh of 500 nodes takes to form, so that covers are chosen on the finished mesh."""


def population(ratio: float, mu: float | None = None) -> MeshPopulation:
    cover = CoverConfig() if mu is None else CoverConfig("one", mu, COVER_DELAY_US)
    config = MeshConfig(heartbeat_us=PERIOD_US, neighbours_max=20, address_bytes_max=8, cover=cover)
    return MeshPopulation(500, 4, 0.2, ratio, notes=0, mesh=config, checks=())


def run_until_formed(people: MeshPopulation, seed: int) -> World:
    """A world that has run until its mesh no longer changes."""
    world = World(seed=seed, links=LinkDelays(latency_us=(10_000, 100_000)))
    people.populate(world, 0)
    covered = people.mesh.cover.rule != "none"
    world.run(10 * PERIOD_US + (COVER_DELAY_US if covered else 0))
    before, size = -1, 0
    while size != before:
        world.run((6 if covered else 3) * PERIOD_US)
        before, size = size, len(people.mesh_members(world))
    return world


def mesh_size(people: MeshPopulation, seed: int) -> int:
    return len(people.mesh_members(run_until_formed(people, seed)))


def mesh_sizes(people: MeshPopulation, seeds: range) -> list[int]:
    """|V_a| for each seed, on two cores."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        return list(workers.map(partial(mesh_size, people), seeds, chunksize=5))
