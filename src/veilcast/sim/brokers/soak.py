"""The soaks of secret forwarding.

`SOAK` draws an overlay of virtual nodes with clients at drawn edges, and runs it for two and a half minutes. All
clients advertise and subscribe in the first ten seconds. In the next minute streams break, clocks are wrong, brokers
die and come back empty, and clients die and come back with their disk. Byzantine brokers lie during the whole run.
Every publication on a publisher's disk must reach every subscriber whose interest it matches, once and unchanged, from
the first note on. All Byzantine brokers together must not know a key, and no honest broker may be called a liar.

Assumption: a node tolerates f faulty replicas. A replica whose stream to another broker breaks counts as faulty, since
a late message may be as bad as a wrong one. So at most f replicas of a node fail at a time, liars included: either some
replicas fail repeatedly, or all honest replicas die in turn, each after the last one is back. Frames on an unbroken
stream are neither lost nor duplicated: TLS carries them.

`LIARS_SOAK` is as small as a run with all tolerated liars can be, so that ten thousand runs take an evening: four hops
of five replicas, two of each Byzantine, one publisher and one subscriber at the ends, and two notes, each under its own
key. Replicas that failed with the first key are not waited for with the second. Keys are dealt when they are needed and
not ahead, so that each note shows that a transfer succeeds. The seed draws the eight liars and their behaviours. Every
note must arrive, no coalition may know a key, and exactly the replicas that told a provable lie must be named.

`EVERY_SOAK` demands the same and draws nothing: the seed numbers all choices of one liar in each node, at each replica
and with each behaviour, on overlays of one to three hops of three replicas. Seeds of the second round deal keys ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

import msgspec

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.content.blocks import Strategy
from veilcast.brokers.keys.scheme import max_faulty
from veilcast.machine import Address
from veilcast.sim.brokers.adversaries import BEHAVIOURS
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.faults import AnyFault, Crash, Cut, Skew
from veilcast.sim.scenario import Scenario
from veilcast.sim.soak import KILL_US_MAX, Soak, SoakTimes, VariantSoak, make_config, take_variant


def draw_faults(rng: Random, population: BrokersPopulation, seed: int) -> list[AnyFault]:
    return [*_draw_failures(rng, population, seed), *_draw_skews(rng, population)]


@dataclass(frozen=True)
class LiarsSoak(Soak):
    """The same overlay under every seed; the seed draws the liars."""

    def plan(self, seed: int) -> Scenario:
        config = make_config("liars", LIARS_TIMES, LIARS_POPULATION)
        return Scenario("broker liars", config, "veilcast sim soak --of brokers-liars --seeds 1")


@dataclass(frozen=True)
class EverySoak(Soak):
    """The seed is the number of the case; after the last case comes the first again."""

    def plan(self, seed: int) -> Scenario:
        population = make_case(seed % CASES)
        if seed // CASES % 2:
            ahead = msgspec.structs.replace(population.client, overtime_us=BrokerClientConfig().overtime_us)
            population = msgspec.structs.replace(population, client=ahead)
        config = make_config("every behaviour", LIARS_TIMES, population)
        return Scenario("broker behaviours", config, "veilcast sim soak --of brokers-every --seeds 1")


def make_case(case: int) -> BrokersPopulation:
    """The population of `EVERY_SOAK` with this number."""
    for hops in count(1):
        cases = _CASES_EACH**hops
        if case < cases:
            break
        case -= cases
    cast = {}
    for node in range(hops):
        case, choice = divmod(case, _CASES_EACH)
        cast[f"v{node}.{choice % REPLICAS + 1}"] = BEHAVIOURS[choice // REPLICAS]
    return msgspec.structs.replace(LIARS_POPULATION, nodes=hops, replicas=REPLICAS, liars=0, cast=cast)


def _draw_failures(rng: Random, population: BrokersPopulation, seed: int) -> list[AnyFault]:
    """Crashes, one after another in each row of machines, and cuts of streams with an end that may fail."""
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
    deaths = [death for row in rows if rng.random() < 0.5 for death in _draw_crashes_in_turn(rng, row)]
    return deaths + _draw_cuts(rng, frail, population.addresses())


def _draw_crashes_in_turn(rng: Random, names: tuple[Address, ...]) -> list[AnyFault]:
    """The next machine dies only when the last one is back and has had time to fetch the state that it lacks."""
    deaths: list[AnyFault] = []
    at_us = TIMES.quiet_us + rng.randrange(GAP_US)
    while True:
        for_us = rng.randint(1, KILL_US_MAX)
        if at_us + for_us >= TIMES.calm_us:
            return deaths
        deaths.append(Crash(at_us=at_us, for_us=for_us, node=rng.choice(names)))
        at_us += for_us + BACK_US + rng.randrange(GAP_US)


def _draw_cuts(rng: Random, frail: Sequence[Address], addresses: Sequence[Address]) -> list[AnyFault]:
    pairs = [(rng.choice(frail), rng.choice(addresses)) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=TIMES.draw_time(rng), between=(one, other)) for one, other in pairs if one != other]


def _draw_skews(rng: Random, population: BrokersPopulation) -> list[AnyFault]:
    if rng.random() < 0.5:
        return []
    wrong = rng.sample(population.addresses(), rng.randint(1, len(population.addresses())))
    return [
        Skew(node=node, offset_us=rng.randint(-SKEW_US, SKEW_US), drift_ppm=rng.randint(-500, 500)) for node in wrong
    ]


TIMES: Final = SoakTimes(
    duration_us=150_000_000, epoch_us=60_000_000, disk_us=100_000, quiet_us=10_000_000, calm_us=70_000_000
)
CUTS_MAX: Final = 100
BACK_US: Final = 8_000_000
"""Time in which a restarted broker asks its neighbours for their state before it counts as correct."""
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
    first_us=TIMES.quiet_us,
    every_us=2_500_000,
    broker=BrokerConfig(connect_us=250_000, bound_us=200_000),
    client=BrokerClientConfig(connect_us=250_000, again_us=2_000_000, refresh_messages=4),
    checks=CHECKS,
)
_BYZANTINE: Final = msgspec.structs.replace(_HARDENED, liars=1, intruders=1)


def _replace_settings(population: BrokersPopulation, **changes: object) -> BrokersPopulation:
    """The same population with changed settings of both brokers and clients."""
    return msgspec.structs.replace(
        population,
        broker=msgspec.structs.replace(population.broker, **changes),
        client=msgspec.structs.replace(population.client, **changes),
    )


VARIANTS: Final[dict[str, BrokersPopulation]] = {
    "hardened": _HARDENED,
    "liars": _BYZANTINE,
    "coded, liars": _replace_settings(_BYZANTINE, strategy=Strategy.CODED),
    "one copy, liars": _replace_settings(_BYZANTINE, strategy=Strategy.ONE),
    "five replicas": msgspec.structs.replace(_BYZANTINE, nodes=2, replicas=5),
    "paper": _replace_settings(_HARDENED, profile="paper"),
    "paper, liars": _replace_settings(_BYZANTINE, profile="paper"),
}

LIARS_TIMES: Final = SoakTimes(duration_us=120_000_000, epoch_us=3_600_000_000)
LIARS_POPULATION: Final = BrokersPopulation(
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
    client=BrokerClientConfig(again_us=30_000_000, want_us=30_000_000, refresh_messages=1, overtime_us=0),
    checks=("once", "intact", "matching", "complete", "secret", "all named"),
)
REPLICAS: Final = 3
HOPS_MAX: Final = 3
_CASES_EACH: Final = REPLICAS * len(BEHAVIOURS)
CASES: Final = sum(_CASES_EACH**hops for hops in range(1, HOPS_MAX + 1))

SOAK: Final = VariantSoak(
    "broker soak", "veilcast sim soak --of brokers --seeds 1", VARIANTS, TIMES, take_variant, draw_faults
)
LIARS_SOAK: Final = LiarsSoak()
EVERY_SOAK: Final = EverySoak()
