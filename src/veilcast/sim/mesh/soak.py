"""The soak of the mesh.

Twenty nodes run for three minutes. For 110 seconds frames are lost, duplicated, reordered or replayed long after by an
eavesdropper; links are blocked, clocks are wrong, and machines pause or die and start again. One member forges
advertisements and notes during the whole run. After the faults the mesh has forty seconds to repair itself. From then
on every note must reach every subscriber. Properties of every step are checked at every step.

Notes sent in the time of faults may be lost: a link would send lost frames again, and there are no links here.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.mesh.config import CoverConfig, Defences, HardeningConfig, MeshConfig, ShellGameConfig
from veilcast.sim.faults import SWARM_KINDS, AnyFault
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.soak import SoakTimes, VariantSoak


def draw_population(rng: Random, mesh: MeshConfig) -> MeshPopulation:
    return MeshPopulation(
        subscribers=rng.uniform(0.1, 0.5),
        notes=(LAST_US - FIRST_US) // EVERY_US,
        first_us=FIRST_US,
        every_us=EVERY_US,
        owed_us=OWED_US,
        mesh=mesh,
        checks=_checks(mesh),
        forgers=1,
        publishers=rng.choice((1, 1, 1, 2)),
    )


def draw_faults(_: Random, population: MeshPopulation, seed: int) -> list[AnyFault]:
    return TIMES.draw_swarm(seed, population.addresses(), SWARM_KINDS)


def _checks(mesh: MeshConfig) -> tuple[str, ...]:
    if mesh.profile == "hardened":
        return tuple(check for check in CHECKS if check not in ("steady", "leases"))
    return (*CHECKS, "connected") if mesh.membership == "scamp" else CHECKS


TIMES: Final = SoakTimes(duration_us=180_000_000, epoch_us=40_000_000, calm_us=110_000_000)
"""The tokens of a hardened mesh change four times in a run."""
FIRST_US: Final = 5_000_000
EVERY_US: Final = 1_000_000
OWED_US: Final = 150_000_000
"""Notes published from this time on must arrive."""
LAST_US: Final = 174_000_000
"""When the last note is sent: before the end, a subscriber must give up waiting for a gap before it."""
CHECKS: Final = ("once", "turns", "intact", "readers", "everyone", "nonces", "leases", "steady", "bounds")

_PLAIN: Final = MeshConfig(neighbours_max=20, address_bytes_max=8, seen_max=144, origins_max=8)
"""`seen_max` is below the notes sent, so that the bound is reached, and above what a pause and a replay hold back."""
_COVER: Final = CoverConfig(rule="one", mu=0.6)
_GAME: Final = ShellGameConfig(start="child")
_DEFENCES: Final = Defences(anchors=True, caps=True, buckets=True, replay=True)
_BRISK: Final = HardeningConfig(window_periods=16, lead_periods=48, grace_periods=48, bit_periods=2)
"""The next root follows within the time for repair, even if a root fails with the last fault; the grace is more than
two clocks differ."""


VARIANTS: Final[dict[str, MeshConfig]] = {
    "baseline": _PLAIN,
    "PF": msgspec.structs.replace(_PLAIN, cover=_COVER),
    "SG": msgspec.structs.replace(_PLAIN, shellgame=_GAME),
    "PFSG": msgspec.structs.replace(_PLAIN, cover=_COVER, shellgame=_GAME),
    "SCAMP": msgspec.structs.replace(_PLAIN, membership="scamp", overlap_periods=8),
    "defences": msgspec.structs.replace(_PLAIN, defences=_DEFENCES),
    "H": MeshConfig(profile="hardened", heartbeat_us=250_000, neighbours_max=20, address_bytes_max=8, hardening=_BRISK),
}

SOAK: Final = VariantSoak("soak", "veilcast sim soak --seeds 1", VARIANTS, TIMES, draw_population, draw_faults)
