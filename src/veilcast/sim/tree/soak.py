"""The tree's soak: one world after the other, each with a variant and a bad time that are drawn from its seed.

A directory and ten nodes for four minutes. In the first thirty seconds everybody enrols and subscribes; then, for a
hundred, streams break, frames are lost or come twice, ways are blocked, machines die and start again with what their
disk holds, stop and go on, clocks are wrong. The last fault is that a node dies for good. A minute later delivery must
have resumed: from then on all that is on a publisher's disk must reach everybody who wants it. Who keeps
half of what it should pass on takes up to two minutes to find, and has another chance later; what it keeps meanwhile is
not owed.

What is published in the bad time is not owed. A node that dies takes with it what it had heard and not passed on, and
so may be lost what both origins of a publication had.

The paper's profile mends nothing: a node that starts anew has forgotten its trees for good. So there nobody dies, and
all the rest goes wrong.

Frames do not change their order, nor come again long after: streams carry them.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address
from veilcast.sim import scenario, soak
from veilcast.sim.faults import AnyFault, Crash, Cut, draw_kills
from veilcast.sim.scenario import Scenario, ScenarioOutcome
from veilcast.sim.soak import SoakTimes
from veilcast.sim.tree.population import DIRECTORY, TreePopulation
from veilcast.tree.config import DirectoryConfig, TreeConfig


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The world of a seed."""

    def faults(rng: Random, population: TreePopulation) -> list[AnyFault]:
        mends = population.tree.profile == "hardened"
        kinds = KINDS if mends else [kind for kind in KINDS if kind != "crash"]
        drawn = [*TIMES.draw_swarm(seed, population.addresses(), kinds), *_cuts(rng, population)]
        return [*drawn, *_kills(rng, population), _loss(rng, population)] if mends else drawn

    return soak.plan_soak("tree soak", "tree", seed, VARIANTS, TIMES, faults)


def _cuts(rng: Random, population: TreePopulation) -> list[AnyFault]:
    """Streams that break, at any moment of the bad time."""
    pairs = [rng.sample(population.addresses(), 2) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=rng.randrange(QUIET_US, CALM_US), between=(one, other)) for one, other in pairs]


def _kills(rng: Random, population: TreePopulation) -> list[AnyFault]:
    """Nodes and the directory die at any moment, and are back soon: in the middle of what they do."""

    def whom() -> Address:
        return DIRECTORY if rng.random() < 0.2 else rng.choice(population.node_names())

    return draw_kills(rng, whom, most=KILLS_MAX, longest_us=KILL_US_MAX, begin_us=QUIET_US, end_us=CALM_US)


def _loss(rng: Random, population: TreePopulation) -> AnyFault:
    """A node that only forwards, and dies for good."""
    busy = (*population.publisher_names(), *population.subscriber_names(), *population.hoarder_names())
    idle = [node for node in population.node_names() if node not in busy]
    return Crash(at_us=CALM_US, node=rng.choice(idle))


DURATION_US: Final = 240_000_000
EPOCH_US: Final = 60_000_000
DISK_US: Final = 200_000
QUIET_US: Final = 30_000_000
"""Until when nothing goes wrong, so that all subscriptions stand."""
CALM_US: Final = 130_000_000
"""When the last fault has begun, and all others have ended."""
TIMES: Final = SoakTimes(DURATION_US, EPOCH_US, DISK_US, QUIET_US, CALM_US)
OWED_US: Final = CALM_US + 60_000_000
CUTS_MAX: Final = 20
KILLS_MAX: Final = 10
KILL_US_MAX: Final = 5_000_000
KINDS: Final = ("loss", "duplicate", "crash", "pause", "partition", "skew")

_HARDENED: Final = TreePopulation(
    nodes=10,
    bits=3,
    notes=100,
    first_us=QUIET_US,
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

_PAPER: Final = msgspec.structs.replace(_HARDENED.tree, profile="paper")

VARIANTS: Final[dict[str, TreePopulation]] = {
    "hardened": _HARDENED,
    "hoarders": msgspec.structs.replace(_HARDENED, hoarders=1),
    "half": msgspec.structs.replace(_HARDENED, hoarders=1, keep_ppm=500_000, owed_us=DURATION_US),
    "paper": msgspec.structs.replace(_HARDENED, tree=_PAPER),
    "paper, mixed": msgspec.structs.replace(_HARDENED, tree=msgspec.structs.replace(_PAPER, routing="seen")),
}
