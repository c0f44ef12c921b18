"""The relay's soak: one world after the other, each with a profile and a bad time that are drawn from its seed.

A server, two proxies and four clients for three minutes. In the first ten seconds everybody subscribes; then, for
ninety seconds, streams break, frames are lost or come twice, ways are blocked, machines die and start again with what
their disk holds, stop and go on, clocks are wrong. From the first note on, all that is on a publisher's disk must reach
everybody who wants it, and the calm at the end is all the time that there is to make up for it. Disks are slow, so that
many a machine dies between what it has done and what it has written.

Frames do not change their order, nor come again long after: streams carry them.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address
from veilcast.sim import scenario, soak
from veilcast.sim.faults import AnyFault, Cut, draw_kills
from veilcast.sim.relay.population import SERVER, RelayPopulation
from veilcast.sim.scenario import Scenario, ScenarioOutcome
from veilcast.sim.soak import SoakTimes


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The world of a seed."""

    def faults(rng: Random, population: RelayPopulation) -> list[AnyFault]:
        drawn = TIMES.draw_swarm(seed, population.addresses(), KINDS)
        return [*drawn, *_cuts(rng, population), *_kills(rng, population)]

    return soak.plan_soak("relay soak", "relay", seed, VARIANTS, TIMES, faults)


def _cuts(rng: Random, population: RelayPopulation) -> list[AnyFault]:
    """Streams that break, of each kind, at any moment of the bad time."""
    proxies, clients = population.proxy_names(), population.client_names()
    cuts: list[AnyFault] = []
    for _ in range(rng.randint(0, CUTS_MAX)):
        one = rng.choice(proxies)
        other: Address = SERVER if rng.random() < 0.5 else rng.choice(clients)
        cuts.append(Cut(at_us=rng.randrange(QUIET_US, CALM_US), between=(one, other)))
    return cuts


def _kills(rng: Random, population: RelayPopulation) -> list[AnyFault]:
    """Server and proxies die at any moment, and are back soon: in the middle of what they do."""

    def whom() -> Address:
        return SERVER if rng.random() < 0.5 else rng.choice(population.proxy_names())

    return draw_kills(rng, whom, most=KILLS_MAX, longest_us=KILL_US_MAX, begin_us=QUIET_US, end_us=CALM_US)


DURATION_US: Final = 180_000_000
EPOCH_US: Final = 30_000_000
"""Leases reach three epochs ahead, so that nobody is away for longer."""
DISK_US: Final = 200_000
QUIET_US: Final = 10_000_000
"""Until when nothing goes wrong, so that all subscriptions stand."""
CALM_US: Final = 100_000_000
"""When the last fault ends."""
TIMES: Final = SoakTimes(DURATION_US, EPOCH_US, DISK_US, QUIET_US, CALM_US)
CUTS_MAX: Final = 20
KILLS_MAX: Final = 10
KILL_US_MAX: Final = 5_000_000
KINDS: Final = ("loss", "duplicate", "crash", "pause", "partition", "skew")
CHECKS: Final = ("once", "intact", "matching", "complete", "bounds")

_HARDENED: Final = RelayPopulation(
    clients=4,
    bits=3,
    notes=66,
    first_us=QUIET_US,
    every_us=2_200_000,
    checks=(*CHECKS, "unasked"),
)

_PACED: Final = {"rate_us": 250_000, "record_bytes": 2048}

VARIANTS: Final[dict[str, RelayPopulation]] = {
    "hardened": _HARDENED,
    "unbatched": msgspec.structs.replace(_HARDENED, proxy=msgspec.structs.replace(_HARDENED.proxy, batch_us=0)),
    "paced": msgspec.structs.replace(
        _HARDENED,
        client=msgspec.structs.replace(_HARDENED.client, **_PACED),
        proxy=msgspec.structs.replace(_HARDENED.proxy, **_PACED),
    ),
    "paper": msgspec.structs.replace(_HARDENED, profile="paper", checks=CHECKS),
}
