"""Random runs with as many liars as an overlay bears: four hops of five replicas, two Byzantine at each.

One publisher and one reader at the ends, and two notes, each under its own key: with the second, those who failed with
the first are not waited for. Who lies and how the seed draws, for each of the eight. Every note must come, no coalition
may know a key, all who told a lie that can be proven must be named, and nobody else. A run is as small as that can be,
so that ten thousand are an evening's work.
"""

from __future__ import annotations

from typing import Final

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.sim import scenario
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The same world under every seed, but for who does what in it."""
    config = scenario.ScenarioConfig("liars", DURATION_US, POPULATION, epoch_us=EPOCH_US)
    return Scenario("broker liars", config, "veilcast sim soak --of brokers-liars --seeds 1")


DURATION_US: Final = 120_000_000
EPOCH_US: Final = 3_600_000_000
POPULATION: Final = BrokersPopulation(
    nodes=4,
    replicas=5,
    liars=2,
    intruders=1,
    readers=1,
    topics=1,
    bits=0,
    notes=2,
    first_us=6_000_000,
    every_us=9_000_000,
    broker=BrokerConfig(bound_us=150_000),
    client=BrokerClientConfig(again_us=30_000_000, want_us=30_000_000, refresh_messages=1),
    checks=("once", "intact", "matching", "complete", "secret", "all named"),
)
