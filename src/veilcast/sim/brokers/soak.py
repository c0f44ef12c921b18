"""The soak of secret forwarding: one world after the other, each with a variant and a bad time drawn from its seed.

An overlay of virtual nodes, drawn, with clients at drawn edges, for two and a half minutes. In the first ten seconds
everybody advertises and subscribes; then, for a minute, streams break, brokers die and come back empty, clients die and
come back with what their disk holds, clocks are wrong; and Byzantine brokers lie all the time. From the first note on,
all that is on a publisher's disk must reach everybody who wants it, once and as it was sent; the calm at the end is all
the time there is to make up for what went wrong. Never may all Byzantine brokers together know a key, and nobody else
may be called a liar.

A node bears f replicas that fail, whatever they do; one whose stream to another broker breaks fails, too, for what is
late may be as bad as what is wrong. So of each node no more fail at a time than f leaves beside its liars: either some
are frail all the time, or all die in turn, one when the last is back. Frames are not lost on a stream that stands, nor
come twice: TLS carries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.content.coding import Strategy
from veilcast.brokers.keys.scheme import max_faulty
from veilcast.machine import Address
from veilcast.sim import scenario
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.faults import AnyFault, Crash, Cut, Skew
from veilcast.sim.rng import derive_rng
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The world of a seed."""
    rng = derive_rng(seed, "broker soak")
    variant = rng.choice(list(VARIANTS))
    population = VARIANTS[variant]
    config = scenario.ScenarioConfig(
        about=variant,
        duration_us=DURATION_US,
        epoch_us=EPOCH_US,
        disk_us=DISK_US,
        population=population,
        faults=(*_failures(rng, population, seed), *_skews(rng, population)),
    )
    return Scenario(f"broker soak {variant}", config, "veilcast sim soak --of brokers --seeds 1")


def _failures(rng: Random, population: BrokersPopulation, seed: int) -> list[AnyFault]:
    """Deaths, one after the other in each row of machines; and cuts of streams that those at one end may lose."""
    liars = population.draw_overlay(seed).liars
    spare = max_faulty(population.replicas) - population.liars
    rows: list[tuple[Address, ...]] = [(name,) for name in (*population.client_names(), *liars)]
    frail = [*population.client_names(), *population.intruder_names(), *liars]
    in_turn = rng.random() < 0.5
    for node in range(population.nodes if spare else 0):
        honest = [name for name in population.replica_names(node) if name not in liars]
        if in_turn:
            rows += [tuple(honest[at::spare]) for at in range(spare)]
        else:
            chosen = rng.sample(honest, spare)
            rows += [(name,) for name in chosen]
            frail += chosen
    deaths = [death for row in rows if rng.random() < 0.5 for death in _one_by_one(rng, row)]
    return deaths + _cuts(rng, frail, population.addresses())


def _one_by_one(rng: Random, names: tuple[Address, ...]) -> list[AnyFault]:
    """Each is back, and has had time to ask for what it lacks, before the next one dies."""
    deaths: list[AnyFault] = []
    at_us = QUIET_US + rng.randrange(GAP_US)
    while True:
        for_us = rng.randint(1, KILL_US_MAX)
        if at_us + for_us >= CALM_US:
            return deaths
        deaths.append(Crash(at_us=at_us, for_us=for_us, node=rng.choice(names)))
        at_us += for_us + BACK_US + rng.randrange(GAP_US)


def _cuts(rng: Random, frail: Sequence[Address], addresses: Sequence[Address]) -> list[AnyFault]:
    """Streams that break, at any moment of the bad time."""
    pairs = [(rng.choice(frail), rng.choice(addresses)) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=rng.randrange(QUIET_US, CALM_US), between=(one, other)) for one, other in pairs if one != other]


def _skews(rng: Random, population: BrokersPopulation) -> list[AnyFault]:
    if rng.random() < 0.5:
        return []
    wrong = rng.sample(population.addresses(), rng.randint(1, len(population.addresses())))
    return [
        Skew(node=node, offset_us=rng.randint(-SKEW_US, SKEW_US), drift_ppm=rng.randint(-500, 500)) for node in wrong
    ]


DURATION_US: Final = 150_000_000
EPOCH_US: Final = 60_000_000
DISK_US: Final = 100_000
QUIET_US: Final = 10_000_000
"""Until when nothing goes wrong, so that all claims stand."""
CALM_US: Final = 70_000_000
"""When the last fault ends."""
CUTS_MAX: Final = 100
KILL_US_MAX: Final = 5_000_000
BACK_US: Final = 8_000_000
"""What a broker that comes back has to ask its neighbours before it counts."""
GAP_US: Final = 20_000_000
SKEW_US: Final = 2_000_000
CHECKS: Final = ("once", "intact", "matching", "complete", "secret", "named", "bounds")

_HARDENED: Final = BrokersPopulation(
    nodes=4,
    shape="random",
    publishers=2,
    readers=3,
    bits=3,
    notes=24,
    first_us=QUIET_US,
    every_us=2_500_000,
    broker=BrokerConfig(connect_us=250_000, bound_us=200_000),
    client=BrokerClientConfig(connect_us=250_000, again_us=2_000_000, refresh_messages=4),
    checks=CHECKS,
)
_LIARS: Final = msgspec.structs.replace(_HARDENED, liars=1, intruders=1)


def _with(population: BrokersPopulation, **changes: object) -> BrokersPopulation:
    """Brokers and clients that are told this alike."""
    return msgspec.structs.replace(
        population,
        broker=msgspec.structs.replace(population.broker, **changes),
        client=msgspec.structs.replace(population.client, **changes),
    )


VARIANTS: Final[dict[str, BrokersPopulation]] = {
    "hardened": _HARDENED,
    "liars": _LIARS,
    "coded, liars": _with(_LIARS, strategy=Strategy.CODED),
    "one copy, liars": _with(_LIARS, strategy=Strategy.ONE),
    "five replicas": msgspec.structs.replace(_LIARS, nodes=2, replicas=5),
    "paper": _with(_HARDENED, profile="paper"),
    "paper, liars": _with(_LIARS, profile="paper"),
}
