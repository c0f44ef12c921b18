"""What soaks of machines with disks have in common: a world of a seed, and when things go wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

import msgspec

from veilcast.machine import Address
from veilcast.sim import scenario
from veilcast.sim.faults import AnyFault, draw_swarm
from veilcast.sim.rng import derive_rng
from veilcast.sim.scenario import Scenario

Population = TypeVar("Population", bound=Any)


class SoakTimes(NamedTuple):
    """Of a world; faults are between `quiet_us` and `calm_us`."""

    duration_us: int
    epoch_us: int
    disk_us: int
    quiet_us: int
    calm_us: int

    def draw_swarm(self, seed: int, addresses: Sequence[Address], kinds: Iterable[str]) -> list[AnyFault]:
        # A swarm is over by three quarters of its horizon.
        drawn = draw_swarm(seed, addresses, (self.calm_us - self.quiet_us) * 4 // 3, list(kinds))
        return [msgspec.structs.replace(fault, at_us=fault.at_us + self.quiet_us) for fault in drawn]


def plan_soak(
    soak: str,
    of: str,
    seed: int,
    variants: Mapping[str, Population],
    times: SoakTimes,
    faults: Callable[[Random, Population], Iterable[AnyFault]],
) -> Scenario:
    """The world of a seed: a variant, and its faults."""
    rng = derive_rng(seed, soak)
    variant = rng.choice(list(variants))
    population = variants[variant]
    config = scenario.ScenarioConfig(
        about=variant,
        duration_us=times.duration_us,
        epoch_us=times.epoch_us,
        disk_us=times.disk_us,
        population=population,
        faults=tuple(faults(rng, population)),
    )
    return Scenario(f"{soak} {variant}", config, f"veilcast sim soak --of {of} --seeds 1")
