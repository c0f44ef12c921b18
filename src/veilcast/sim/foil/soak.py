"""The soak of foiling.

A broker and four members run for three minutes. All members subscribe in the first ten seconds. In the next ninety
seconds the broker is killed repeatedly, with all that it has acknowledged; streams break, links are blocked, clocks are
wrong, and members pause or die and start again with their disk. Disks are slow, so that many members die between an
action and its record.

Every publication on a publisher's disk must reach every member whose interest it matches, once, from the first note on.
Streams neither lose nor duplicate single frames. Frames sent into a blocked link are lost, and both ends must notice.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.foil.config import FoilConfig
from veilcast.sim.faults import AnyFault, Cut
from veilcast.sim.foil.mqtt_broker import MqttBrokerConfig
from veilcast.sim.foil.population import BROKER, FoilPopulation
from veilcast.sim.soak import CUTS_MAX, SoakTimes, VariantSoak, take_variant


def draw_faults(rng: Random, population: FoilPopulation, seed: int) -> list[AnyFault]:
    swarm = TIMES.draw_swarm(seed, population.addresses(), KINDS)
    return [*swarm, *_draw_cuts(rng, population), *TIMES.draw_kills(rng, lambda: BROKER, least=1)]


def _draw_cuts(rng: Random, population: FoilPopulation) -> list[AnyFault]:
    """A cut breaks all streams of one member."""
    members = population.member_names()
    cuts = [(TIMES.draw_time(rng), rng.choice(members)) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=at_us, between=(member, BROKER)) for at_us, member in cuts]


TIMES: Final = SoakTimes(
    duration_us=180_000_000, epoch_us=60_000_000, disk_us=200_000, quiet_us=10_000_000, calm_us=100_000_000
)
KINDS: Final = ("crash", "pause", "partition", "skew")

_HARDENED: Final = FoilPopulation(
    members=4,
    bits=3,
    notes=60,
    first_us=TIMES.quiet_us,
    every_us=2_400_000,
    foil=FoilConfig(
        k_p=2,
        k_s=1,
        retry_us=3_000_000,
        connect_us=500_000,
        keep_alive_us=5_000_000,
        ahead_us=5_000_000,
        keep_us=110_000_000,
        margin_us=15_000_000,
    ),
)

_FOIL: Final = _HARDENED.foil

VARIANTS: Final[dict[str, FoilPopulation]] = {
    "hardened": _HARDENED,
    "paper": msgspec.structs.replace(_HARDENED, foil=msgspec.structs.replace(_FOIL, profile="paper")),
    "saved": msgspec.structs.replace(_HARDENED, broker=MqttBrokerConfig(save_us=5_000_000)),
    "3.1.1": msgspec.structs.replace(_HARDENED, foil=msgspec.structs.replace(_FOIL, version=4)),
    "mischief": msgspec.structs.replace(
        _HARDENED, broker=MqttBrokerConfig(duplicate_ppm=200_000, reorder_ppm=200_000, window=4)
    ),
}

SOAK: Final = VariantSoak(
    "foil soak", "veilcast sim soak --of foil --seeds 1", VARIANTS, TIMES, take_variant, draw_faults
)
