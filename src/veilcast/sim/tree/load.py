"""The cost of publications in a tree, counted on its machines: copies between nodes, and the busiest node.

P2 gives each subscriber its own tree, and lets nodes forward by topic alone: to their parents in all trees, whichever
tree a copy came on. The additional cost against separate trees is counted here, at sizes where every message is a real
one. A model of the lab counts it at larger sizes.

All nodes are listed before the first one subscribes, so that trees are those of the plan. No node fails.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.sim.engine import SimulationError
from veilcast.sim.links import LinkDelays
from veilcast.sim.tree.checkers import CopyCounter
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import World
from veilcast.tree.config import DirectoryConfig, PaperRouting, TreeConfig


class TreeLoad(msgspec.Struct, frozen=True):
    """The cost of `publications`; `cut` is True if copies still circulated when the limit was reached."""

    nodes: int
    subscribers: int
    routing: PaperRouting
    publications: int
    copies: int
    busiest: int
    delivered: int
    cut: bool


def measure_load(
    nodes: int, subscribers: int, routing: PaperRouting, publications: int, seed: int, most: int = 2_000_000
) -> TreeLoad:
    """Publish one note after another, to origins drawn at random, and let each reach all subscribers."""
    population = TreePopulation(
        nodes=nodes,
        publishers=1,
        subscribers=subscribers,
        topics=1,
        bits=0,
        subscribe_us=SUBSCRIBE_US,
        notes=publications,
        first_us=PUBLISH_US,
        every_us=EVERY_US,
        tree=_TREE[routing],
        directory=_DIRECTORY,
        checks=(),
    )
    world, traffic = World(seed=seed, links=_LINKS), CopyCounter(most)
    world.watch(traffic)
    duration_us = PUBLISH_US + (publications + 1) * EVERY_US
    population.populate(world, duration_us)
    try:
        world.run(duration_us)
        cut = False
    except SimulationError:
        cut = True
    busiest = max(traffic.sent.values(), default=0)
    return TreeLoad(nodes, subscribers, routing, publications, traffic.total, busiest, world.deliveries, cut)


SUBSCRIBE_US: Final = 90_000_000
PUBLISH_US: Final = 120_000_000
EVERY_US: Final = 5_000_000
"""Time between publications: enough for all copies of one to arrive."""

_LINKS: Final = LinkDelays(latency_us=(10_000, 50_000))
_DIRECTORY: Final = DirectoryConfig(lease_us=3_600_000_000, enrols_every_us=1, publish_us=1_000_000)
_TREE: Final = {
    routing: TreeConfig(profile="paper", routing=routing, fetch_us=60_000_000, messages_burst=1 << 20)
    for routing in ("trees", "seen", "labels")
}
