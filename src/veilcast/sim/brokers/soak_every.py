"""Every behaviour at every replica: overlays of one to three hops of three, one of each node lies, and all ways to
choose who and how are gone through, one after the other, by their numbers.

One publisher and one reader at the ends, and two notes. The same must hold as in `soak_liars`; what differs is that
nothing is drawn here.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import msgspec

from veilcast.sim import scenario
from veilcast.sim.brokers import soak_liars
from veilcast.sim.brokers.adversaries import BEHAVIOURS
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The case of this number; after the last, the first again."""
    config = scenario.ScenarioConfig("every behaviour", soak_liars.DURATION_US, make_population(seed % CASES))
    return Scenario("broker behaviours", config, "veilcast sim soak --of brokers-every --seeds 1")


def make_population(case: int) -> BrokersPopulation:
    for hops in count(1):
        cases = _EACH**hops
        if case < cases:
            break
        case -= cases
    cast = {}
    for node in range(hops):
        case, choice = divmod(case, _EACH)
        cast[f"v{node}.{choice % REPLICAS + 1}"] = BEHAVIOURS[choice // REPLICAS]
    return msgspec.structs.replace(soak_liars.POPULATION, nodes=hops, replicas=REPLICAS, liars=0, cast=cast)


REPLICAS: Final = 3
HOPS_MAX: Final = 3
_EACH: Final = REPLICAS * len(BEHAVIOURS)
CASES: Final = sum(_EACH**hops for hops in range(1, HOPS_MAX + 1))
