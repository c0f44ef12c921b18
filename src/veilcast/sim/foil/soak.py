"""The soak of foiling: one world after the other, each with a variant and a bad time that are drawn from its seed.

A broker and four members for three minutes. In the first ten seconds everybody subscribes; then, for ninety seconds,
the broker is killed again and again, with all that it has acknowledged, streams break, ways are blocked, members die
and start again with what their disk holds, stop and go on, clocks are wrong. From the first note on, all that is on a
publisher's disk must reach everybody who wants it, once, and the calm at the end is all the time that there is to make
up for it. Disks are slow, so that many a member dies between what it has done and what it has written.

Streams do not lose single frames, nor bring them twice: what goes into a blocked way is gone, and the two ends have to
find out.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.foil.config import FoilConfig
from veilcast.sim import scenario, soak
from veilcast.sim.faults import AnyFault, Cut, draw_kills
from veilcast.sim.foil.mqtt_broker import MqttBrokerConfig
from veilcast.sim.foil.population import BROKER, FoilPopulation
from veilcast.sim.scenario import Scenario, ScenarioOutcome
from veilcast.sim.soak import SoakTimes


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The world of a seed."""

    def faults(rng: Random, population: FoilPopulation) -> list[AnyFault]:
        return [*TIMES.draw_swarm(seed, population.addresses(), KINDS), *_cuts(rng, population), *_kills(rng)]

    return soak.plan_soak("foil soak", "foil", seed, VARIANTS, TIMES, faults)


def _cuts(rng: Random, population: FoilPopulation) -> list[AnyFault]:
    """Streams that break, at any moment of the bad time: all that a member has."""
    members = population.member_names()
    cuts = [(rng.randrange(QUIET_US, CALM_US), rng.choice(members)) for _ in range(rng.randint(0, CUTS_MAX))]
    return [Cut(at_us=at_us, between=(member, BROKER)) for at_us, member in cuts]


def _kills(rng: Random) -> list[AnyFault]:
    """The broker dies at any moment, and is back soon."""
    return draw_kills(
        rng, lambda: BROKER, least=1, most=KILLS_MAX, longest_us=KILL_US_MAX, begin_us=QUIET_US, end_us=CALM_US
    )


DURATION_US: Final = 180_000_000
EPOCH_US: Final = 60_000_000
DISK_US: Final = 200_000
QUIET_US: Final = 10_000_000
"""Until when nothing goes wrong, so that all subscriptions stand."""
CALM_US: Final = 100_000_000
"""When the last fault ends."""
TIMES: Final = SoakTimes(DURATION_US, EPOCH_US, DISK_US, QUIET_US, CALM_US)
CUTS_MAX: Final = 20
KILLS_MAX: Final = 10
KILL_US_MAX: Final = 5_000_000
KINDS: Final = ("crash", "pause", "partition", "skew")

_HARDENED: Final = FoilPopulation(
    members=4,
    bits=3,
    notes=60,
    first_us=QUIET_US,
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
