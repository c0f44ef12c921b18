"""The soak of the tree.

A directory and ten nodes run for four minutes. All nodes enrol and subscribe in the first thirty seconds. In the next
hundred seconds streams break, frames are lost or duplicated, links are blocked, clocks are wrong, and machines pause or
die and start again with their disk. The last fault is that a node dies and does not come back. A minute later delivery
must have resumed: from then on every publication on a publisher's disk must reach every node whose interest it matches.

A publication made in the time of faults may be lost: a node that dies takes with it publications that it has
acknowledged and not forwarded, and both origins of a publication may die.

It takes up to two minutes to find a node that keeps half of the publications that it should forward, and such a node
gets another chance later. The variant "half" therefore owes nothing.

The paper's profile repairs nothing: a restarted node has lost its trees. There, no node dies, and all other faults
happen. Frames are neither reordered nor replayed, since streams carry them.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address
from veilcast.sim.faults import AnyFault, Crash, Cut
from veilcast.sim.soak import CUTS_MAX, SoakTimes, VariantSoak, take_variant
from veilcast.sim.tree.population import DIRECTORY, TreePopulation
from veilcast.tree.config import DirectoryConfig, TreeConfig


def draw_faults(rng: Random, population: TreePopulation, seed: int) -> list[AnyFault]:
    def draw_machine() -> Address:
        return DIRECTORY if rng.random() < 0.2 else rng.choice(population.node_names())

    repairs = population.tree.profile == "hardened"
    kinds = KINDS if repairs else [kind for kind in KINDS if kind != "crash"]
    drawn = [*TIMES.draw_swarm(seed, population.addresses(), kinds), *_draw_cuts(rng, population)]
    if not repairs:
        return drawn
    return [*drawn, *TIMES.draw_kills(rng, draw_machine), _draw_last_crash(rng, population)]


def _draw_cuts(rng: Random, population: TreePopulation) -> list[AnyFault]:
    pairs = [rng.sample(population.addresses(), 2) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=TIMES.draw_time(rng), between=(one, other)) for one, other in pairs]


def _draw_last_crash(rng: Random, population: TreePopulation) -> AnyFault:
    """A node that only forwards dies, and does not come back."""
    busy = (*population.publisher_names(), *population.subscriber_names(), *population.hoarder_names())
    idle = [node for node in population.node_names() if node not in busy]
    return Crash(at_us=TIMES.calm_us, node=rng.choice(idle))


TIMES: Final = SoakTimes(
    duration_us=240_000_000, epoch_us=60_000_000, disk_us=200_000, quiet_us=30_000_000, calm_us=130_000_000
)
OWED_US: Final = TIMES.calm_us + 60_000_000
KINDS: Final = ("loss", "duplicate", "crash", "pause", "partition", "skew")

_HARDENED: Final = TreePopulation(
    nodes=10,
    bits=3,
    notes=100,
    first_us=TIMES.quiet_us,
    every_us=2_000_000,
    owed_us=OWED_US,
    tree=TreeConfig(
        fetch_us=10_000_000,
        connect_us=1_000_000,
        retry_us=5_000_000,
        spread_us=2_000_000,
        ahead_us=5_000_000,
        probe_us=1_000_000,
    ),
    directory=DirectoryConfig(lease_us=60_000_000, publish_us=2_000_000),
    checks=("once", "intact", "matching", "complete", "bounds"),
)

_PAPER: Final = msgspec.structs.replace(_HARDENED.tree, profile="paper", routing="trees")
"""Labels, the paper's own routing, lose a message now and then by design, and multiply messages under faults."""

VARIANTS: Final[dict[str, TreePopulation]] = {
    "hardened": _HARDENED,
    "hoarders": msgspec.structs.replace(_HARDENED, hoarders=1),
    "half": msgspec.structs.replace(_HARDENED, hoarders=1, keep_ppm=500_000, owed_us=TIMES.duration_us),
    "paper": msgspec.structs.replace(_HARDENED, tree=_PAPER),
    "paper, mixed": msgspec.structs.replace(_HARDENED, tree=msgspec.structs.replace(_PAPER, routing="seen")),
}

SOAK: Final = VariantSoak(
    "tree soak", "veilcast sim soak --of tree --seeds 1", VARIANTS, TIMES, take_variant, draw_faults
)
