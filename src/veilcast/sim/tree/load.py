"""What publications cost a tree, counted on its machines: copies that nodes send one another, and the busiest node.

P2 gives each subscriber a tree of its own, and lets nodes forward by topic alone: to the parents they have in all
trees, whichever a copy came on. How much that costs beside trees that are kept apart is a count that one can make, here
at sizes where every message is a real one, and with a kernel of the lab at larger ones.

Everybody is listed before anybody subscribes, so that trees are those of the plan; nobody fails.
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
    """What so many publications cost; `cut` if they were still circling when their number was up."""

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
    """Publish one after the other, to origins drawn at random, and let each reach everybody."""
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
"""For a copy to have come everywhere it goes before the next publication."""

_LINKS: Final = LinkDelays(latency_us=(10_000, 50_000))
_DIRECTORY: Final = DirectoryConfig(lease_us=3_600_000_000, enrols_every_us=1, publish_us=1_000_000)
_TREE: Final = {
    routing: TreeConfig(profile="paper", routing=routing, fetch_us=60_000_000, messages_burst=1 << 20)
    for routing in ("trees", "seen", "labels")
}
