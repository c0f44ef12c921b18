"""The overlay that SCAMP builds, held against the machines that build it."""

from __future__ import annotations

from math import log, sqrt
from statistics import mean, stdev

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.data import largest_component
from veilcast.lab.models import scamp as kernel
from veilcast.lab.models.scamp import scamp_graph
from veilcast.mesh.config import MeshConfig, ScampConfig
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World

JOIN_US = 4_000_000
"""Long enough for one to have joined before the next comes, as in the model."""


def degrees_of_machines(nodes: int, seed: int) -> list[int]:
    config = MeshConfig(membership="scamp", neighbours_max=32, address_bytes_max=8)
    people = MeshPopulation(nodes, notes=0, mesh=config, checks=(), join_us=JOIN_US)
    world = World(seed=seed, links=LinkDelays(latency_us=(1_000, 1_000)))
    people.populate(world, 0)
    world.run(nodes * JOIN_US + 40_000_000)
    return [len(world.machine(name).overlay.present_neighbours()) for name in people.addresses()]


def test_degrees_are_those_of_the_machines() -> None:
    assert (ScampConfig().walk_hops, ScampConfig().forward_hops) == (kernel.WALK_HOPS, kernel.FORWARD_HOPS)
    assert MeshPopulation().contacts == kernel.CONTACTS
    modelled = [scamp_graph(40, seed).degrees for seed in range(60)]
    real = [degrees_of_machines(40, seed) for seed in range(2)]
    for statistic in (np.mean, np.std):
        mine, theirs = [float(statistic(d)) for d in modelled], [float(statistic(d)) for d in real]
        assert abs(mean(mine) - mean(theirs)) < 3 * stdev(mine) * sqrt(1 / len(real) + 1 / len(mine))


@pytest.mark.parametrize(("copies", "neighbours_max"), [(0, 24), (1, 48), (2, 96)])
def test_degrees_grow_as_twice_the_law_of_views(copies: int, neighbours_max: int) -> None:
    graphs = (scamp_graph(1_000, seed, copies=copies, neighbours_max=neighbours_max) for seed in range(4))
    found = mean(float(graph.degrees.mean()) for graph in graphs)
    assert found == pytest.approx(2 * (copies + 1) * log(1_000), rel=0.1)


def test_the_overlay_is_whole_and_bounded() -> None:
    graph = scamp_graph(2_000, 1, neighbours_max=40)
    assert largest_component(graph).all()
    assert graph.degrees.max() <= 40
    assert graph.degrees.min() >= 1


def test_the_same_seed_gives_the_same_overlay() -> None:
    assert (scamp_graph(300, 1).targets == scamp_graph(300, 1).targets).all()
    assert scamp_graph(300, 1).targets.tolist() != scamp_graph(300, 2).targets.tolist()


def test_an_overlay_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError):
        scamp_graph(1, 1)
