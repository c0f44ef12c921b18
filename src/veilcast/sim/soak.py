"""Soaks: one scenario after another, each with a variant and faults that are drawn from its seed.

Each mode has a table of its variants and its fault times in `<mode>/soak.py`. A run is quiet until `quiet_us`, so that
all subscriptions are active. Faults happen until `calm_us`. The rest of the run is the time to make up for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from veilcast.machine import Address
from veilcast.sim.faults import AnyFault, draw_kills, draw_swarm
from veilcast.sim.rng import derive_rng
from veilcast.sim.scenario import AnyPopulation, Scenario, ScenarioConfig, ScenarioOutcome, run_scenario

Variant = TypeVar("Variant")
Population = TypeVar("Population", bound=Any)


class SoakTimes(NamedTuple):
    """Times of a run in microseconds; `epoch_us` and `disk_us` as in a scenario."""

    duration_us: int
    epoch_us: int
    disk_us: int = 1_000
    quiet_us: int = 0
    """No fault begins before this time."""
    calm_us: int = 0
    """All faults that end have ended by this time."""

    def draw_swarm(self, seed: int, addresses: Sequence[Address], kinds: Iterable[str]) -> list[AnyFault]:
        # A swarm is over by three quarters of its horizon.
        drawn = draw_swarm(seed, addresses, (self.calm_us - self.quiet_us) * 4 // 3, list(kinds))
        return [msgspec.structs.replace(fault, at_us=fault.at_us + self.quiet_us) for fault in drawn]

    def draw_time(self, rng: Random) -> int:
        """A time at which faults happen."""
        return rng.randrange(self.quiet_us, self.calm_us)

    def draw_kills(self, rng: Random, draw_address: Callable[[], Address], *, least: int = 0) -> list[AnyFault]:
        return draw_kills(
            rng,
            draw_address,
            least=least,
            most=KILLS_MAX,
            longest_us=KILL_US_MAX,
            begin_us=self.quiet_us,
            end_us=self.calm_us,
        )


class Soak(ABC):
    """A function from seeds to scenarios."""

    @abstractmethod
    def plan(self, seed: int) -> Scenario: ...

    def run(self, seed: int) -> ScenarioOutcome:
        return run_scenario(self.plan(seed), seed)


@dataclass(frozen=True)
class VariantSoak(Soak, Generic[Variant, Population]):
    """Draws a variant, the population of that variant, and its faults, in this order from one generator."""

    name: str
    """Name of the generator, and the beginning of the scenario's name."""
    command: str
    variants: Mapping[str, Variant]
    times: SoakTimes
    draw_population: Callable[[Random, Variant], Population]
    draw_faults: Callable[[Random, Population, int], Iterable[AnyFault]]
    """Called with the generator, the population and the seed."""

    def plan(self, seed: int) -> Scenario:
        rng = derive_rng(seed, self.name)
        variant = rng.choice(list(self.variants))
        population = self.draw_population(rng, self.variants[variant])
        faults = tuple(self.draw_faults(rng, population, seed))
        config = make_config(variant, self.times, population, faults)
        return Scenario(f"{self.name} {variant}", config, self.command)


def make_config(
    about: str, times: SoakTimes, population: AnyPopulation, faults: tuple[AnyFault, ...] = ()
) -> ScenarioConfig:
    return ScenarioConfig(
        about=about,
        duration_us=times.duration_us,
        epoch_us=times.epoch_us,
        disk_us=times.disk_us,
        population=population,
        faults=faults,
    )


def take_variant(_: Random, population: Population) -> Population:
    """The variant itself, if the variants of a table are populations."""
    return population


CUTS_MAX: Final = 20
"""Most broken streams in one run."""
KILLS_MAX: Final = 10
"""Most kills in one run, beside those of a swarm."""
KILL_US_MAX: Final = 5_000_000
"""Longest time until a killed machine starts again, in microseconds."""
