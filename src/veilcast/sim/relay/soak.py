"""The soak of the relay.

A server, two proxies and four clients run for three minutes. All clients subscribe in the first ten seconds. In the
next ninety seconds streams break, frames are lost or duplicated, links are blocked, clocks are wrong, and machines
pause or die and start again with their disk. Disks are slow, so that many machines die between an action and its
record.

Every publication on a publisher's disk must reach every client whose interest it matches, from the first note on.
Frames are neither reordered nor replayed, since streams carry them.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.machine import Address
from veilcast.sim.faults import AnyFault, Cut
from veilcast.sim.relay.population import SERVER, RelayPopulation
from veilcast.sim.soak import CUTS_MAX, SoakTimes, VariantSoak, take_variant


def draw_faults(rng: Random, population: RelayPopulation, seed: int) -> list[AnyFault]:
    def draw_host() -> Address:
        return SERVER if rng.random() < 0.5 else rng.choice(population.proxy_names())

    swarm = TIMES.draw_swarm(seed, population.addresses(), KINDS)
    return [*swarm, *_draw_cuts(rng, population), *TIMES.draw_kills(rng, draw_host)]


def _draw_cuts(rng: Random, population: RelayPopulation) -> list[AnyFault]:
    """Broken streams between a proxy and the server or a client."""
    proxies, clients = population.proxy_names(), population.client_names()
    cuts: list[AnyFault] = []
    for _ in range(rng.randint(0, CUTS_MAX)):
        one = rng.choice(proxies)
        other: Address = SERVER if rng.random() < 0.5 else rng.choice(clients)
        cuts.append(Cut(at_us=TIMES.draw_time(rng), between=(one, other)))
    return cuts


TIMES: Final = SoakTimes(
    duration_us=180_000_000, epoch_us=30_000_000, disk_us=200_000, quiet_us=10_000_000, calm_us=100_000_000
)
"""Leases reach three epochs ahead, so that no client is away for longer than its leases."""
KINDS: Final = ("loss", "duplicate", "crash", "pause", "partition", "skew")
CHECKS: Final = ("once", "intact", "matching", "complete", "bounds")

_HARDENED: Final = RelayPopulation(
    clients=4,
    bits=3,
    notes=66,
    first_us=TIMES.quiet_us,
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

SOAK: Final = VariantSoak(
    "relay soak", "veilcast sim soak --of relay --seeds 1", VARIANTS, TIMES, take_variant, draw_faults
)
