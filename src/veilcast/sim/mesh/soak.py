"""The soak: one world after the other, each with a mesh, a variant of it and a bad time that are drawn from its seed.

Twenty nodes for three minutes. For most of two of them things go wrong: frames are lost, come twice, out of order, or
again long after, by an adversary who listens; ways are blocked, machines die and start again, stop and go on, clocks
are wrong. And one of the members forges adverts and notes the whole time. Then the faults stop, the mesh has forty
seconds to repair itself, and from then on every note must reach every subscriber. All that must hold at every step is
checked at every step.

Notes sent in the bad time are not owed: what is lost on a link the link sends again, and there are none here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.mesh.config import CoverConfig, Defences, HardeningConfig, MeshConfig, ShellGameConfig
from veilcast.sim import scenario
from veilcast.sim.faults import SWARM_KINDS, draw_swarm
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.rng import derive_rng
from veilcast.sim.scenario import Scenario, ScenarioOutcome


def run_seed(seed: int) -> ScenarioOutcome:
    return scenario.run_scenario(plan_scenario(seed), seed)


def plan_scenario(seed: int) -> Scenario:
    """The world of a seed."""
    rng = derive_rng(seed, "soak")
    variant = rng.choice(list(VARIANTS))
    mesh = VARIANTS[variant]
    population = MeshPopulation(
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
    # A swarm is over by three quarters of its horizon.
    faults = draw_swarm(seed, population.addresses(), CALM_US * 4 // 3, SWARM_KINDS)
    config = scenario.ScenarioConfig(
        about=variant, duration_us=DURATION_US, epoch_us=EPOCH_US, population=population, faults=faults
    )
    return Scenario(f"soak {variant}", config, "veilcast sim soak --seeds 1")


def _checks(mesh: MeshConfig) -> tuple[str, ...]:
    if mesh.profile == "hardened":
        return tuple(check for check in CHECKS if check not in ("steady", "leases"))
    return (*CHECKS, "connected") if mesh.membership == "scamp" else CHECKS


DURATION_US: Final = 180_000_000
EPOCH_US: Final = 40_000_000
"""The tokens of a hardened mesh change four times in a run."""
FIRST_US: Final = 5_000_000
EVERY_US: Final = 1_000_000
CALM_US: Final = 110_000_000
"""When the last fault ends."""
OWED_US: Final = 150_000_000
"""From when on notes must arrive."""
LAST_US: Final = 174_000_000
"""When the last note is sent: a gap before it must be given up before the end."""
CHECKS: Final = ("once", "turns", "intact", "readers", "everyone", "nonces", "leases", "steady", "bounds")

_PLAIN: Final = MeshConfig(neighbours_max=20, address_bytes_max=8, seen_max=144, origins_max=8)
"""Fewer notes are remembered than are sent, so that the bound is met; and more than a pause and a replay hold back."""
_COVER: Final = CoverConfig(rule="one", mu=0.6)
_GAME: Final = ShellGameConfig(start="child")
_DEFENCES: Final = Defences(anchors=True, caps=True, buckets=True, replay=True)
_BRISK: Final = HardeningConfig(window_periods=16, lead_periods=48, grace_periods=48, bit_periods=2)
"""A root that fails at the very end of the bad time is to be followed by another within the time for repair; and the
grace is more than two clocks differ."""


VARIANTS: Final[dict[str, MeshConfig]] = {
    "baseline": _PLAIN,
    "PF": msgspec.structs.replace(_PLAIN, cover=_COVER),
    "SG": msgspec.structs.replace(_PLAIN, shellgame=_GAME),
    "PFSG": msgspec.structs.replace(_PLAIN, cover=_COVER, shellgame=_GAME),
    "SCAMP": msgspec.structs.replace(_PLAIN, membership="scamp", overlap_periods=8),
    "defences": msgspec.structs.replace(_PLAIN, defences=_DEFENCES),
    "H": MeshConfig(profile="hardened", heartbeat_us=250_000, neighbours_max=20, address_bytes_max=8, hardening=_BRISK),
}
