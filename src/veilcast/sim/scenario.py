"""Scenarios: a whole run as a TOML file, read into frozen values that are validated.

A scenario names a population, the links between its machines, and the faults: a script, a swarm drawn from the seed, or
both. `load_scenario` takes a packaged name or a path. `run_scenario` builds a world and runs it. An unknown key is an
error that names the key.
"""

from __future__ import annotations

import shlex
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeAlias

import msgspec

from veilcast.decoding import read_toml
from veilcast.errors import ConfigError
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.engine import FrameCounts, SimulationError
from veilcast.sim.faults import SWARM_KINDS, AnyFault, draw_swarm, inject_faults
from veilcast.sim.flood import FloodPopulation
from veilcast.sim.foil.population import FoilPopulation
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.mesh.sybils import SybilPopulation
from veilcast.sim.recorder import RowSink
from veilcast.sim.relay.population import RelayPopulation
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import EventSink, World

AnyPopulation: TypeAlias = (
    FloodPopulation
    | MeshPopulation
    | SybilPopulation
    | RelayPopulation
    | TreePopulation
    | FoilPopulation
    | BrokersPopulation
)
"""Each mode has one population class, named here."""


class Swarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults drawn from the seed."""

    kinds: tuple[str, ...] = SWARM_KINDS
    """The kinds that the seed may switch on."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in SWARM_KINDS:
                raise ConfigError(f"swarm.kinds: no kind {kind!r}, only {', '.join(SWARM_KINDS)}")


class ScenarioConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a scenario file."""

    about: str
    """A description in one line."""
    duration_us: int
    population: AnyPopulation
    links: LinkDelays = LinkDelays()
    faults: tuple[AnyFault, ...] = ()
    swarm: Swarm | None = None
    epoch_us: int = 3_600_000_000
    disk_us: int = 1_000

    def __post_init__(self) -> None:
        if self.duration_us < 1 or self.epoch_us < 1:
            raise ConfigError("duration_us and epoch_us must be at least 1")
        if self.disk_us < 0:
            raise ConfigError("disk_us must not be negative")
        known = dict.fromkeys(self.population.addresses())
        for fault in self.faults:
            for node in fault.nodes():
                if node not in known:
                    raise ConfigError(f"faults: there is no node {node!r} in this population")


class Scenario(msgspec.Struct, frozen=True):
    """A configuration, and the name or path that it was loaded by."""

    name: str
    config: ScenarioConfig
    command: str = ""
    """The command that runs it, if that is not `veilcast sim run` with the name."""


class ScenarioOutcome(msgspec.Struct, frozen=True):
    """The result of a run."""

    scenario: str
    seed: int
    trace_hash: str
    counts: FrameCounts
    deliveries: int
    """Notes delivered to subscribers, copies included."""
    duration_us: int
    """Virtual time that passed; less than the scenario's if the run failed."""
    facts: dict[str, int]
    """Results of the population: sizes, and messages by kind."""
    violations: tuple[str, ...]
    """A run stops at its first violation; the text ends with the command that replays it."""


def packaged_names() -> tuple[str, ...]:
    """The scenarios that come with the package."""
    files = (Path(entry.name) for entry in _scenario_folder().iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".toml"))


def load_scenario(name_or_path: str | Path) -> Scenario:
    name = str(name_or_path)
    if name in packaged_names():
        return Scenario(name, parse_config((_scenario_folder() / f"{name}.toml").read_bytes(), name))
    try:
        return Scenario(name, parse_config(Path(name).read_bytes(), name))
    except OSError as error:
        known = ", ".join(packaged_names())
        raise ConfigError(f"no scenario {name}: {error.strerror}; the packaged ones are {known}") from error


def parse_config(toml: bytes, name: str) -> ScenarioConfig:
    table = read_toml(toml, f"scenario {name}")
    try:
        return msgspec.convert(table, ScenarioConfig)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"scenario {name}: {error}") from error


def run_scenario(
    scenario: Scenario, seed: int, recorder: RowSink | None = None, on_event: EventSink | None = None
) -> ScenarioOutcome:
    """Run a scenario under a seed. Failures are part of the outcome, not raised."""
    world = build_world(scenario, seed, recorder, on_event)
    violations: tuple[str, ...] = ()
    try:
        world.run(scenario.config.duration_us)
        world.finish()
    except SimulationError as failure:
        violations = (str(failure),)
    return ScenarioOutcome(
        scenario=scenario.name,
        seed=seed,
        trace_hash=world.trace_hash,
        counts=world.counts,
        deliveries=world.deliveries,
        duration_us=world.now - world.start,
        facts=scenario.config.population.facts(world),
        violations=violations,
    )


def build_world(
    scenario: Scenario, seed: int, recorder: RowSink | None = None, on_event: EventSink | None = None
) -> World:
    """The world of a scenario at its start, for callers that step through it."""
    config = scenario.config
    world = World(
        seed=seed,
        links=config.links,
        recorder=recorder,
        run=f"{scenario.name}-{seed}",
        epoch_us=config.epoch_us,
        disk_us=config.disk_us,
        on_event=on_event,
        replay=f"{scenario.command or f'veilcast sim run {shlex.quote(scenario.name)}'} --seed {seed}",
    )
    config.population.populate(world, config.duration_us)
    inject_faults(world, config.faults)
    if config.swarm is not None:
        inject_faults(world, draw_swarm(seed, config.population.addresses(), config.duration_us, config.swarm.kinds))
    return world


def _scenario_folder() -> Traversable:
    return resources.files("veilcast") / "scenarios"
