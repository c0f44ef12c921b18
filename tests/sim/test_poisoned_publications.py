"""A hostile publisher in every mode: no fault, and no honest publication is lost. Faults of a machine end a run."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from support.poisoned_publications import make_poisons, publish_poison
from veilcast.core.publication import decode_publication
from veilcast.errors import MalformedError
from veilcast.machine import Publication
from veilcast.sim import scenario
from veilcast.sim.engine import SimulationError
from veilcast.sim.mesh.population import TOPIC
from veilcast.sim.world import World
from veilcast.sim.wrappers import iterate_layers, unwrap
from veilcast.topics import Equal, Label
from veilcast.topics.interests import Conjunction

SMALL = ["mesh-small", "relay-small", "relay-paper", "tree-small", "tree-paper", "foil-small", "foil-paper"]
SMALL += ["brokers-small", "brokers-paper"]
LONG = [pytest.param("mesh-hardened", marks=pytest.mark.all_only)]


def small(name: str) -> tuple[World, int, Any]:
    """The world of a scenario without checks on delivered notes: some poison is legal, and arrives."""
    known = scenario.load_scenario(name)
    population: Any = known.config.population
    kept = tuple(check for check in population.checks if check in ("once", "complete", "everyone", "bounds"))
    config = msgspec.structs.replace(known.config, population=msgspec.structs.replace(population, checks=kept))
    world = scenario.build_world(scenario.Scenario(name, config), 1)
    return world, config.duration_us, population


def honest(population: Any) -> list[Publication]:
    """Several publications, so that some subscriber wants one of them."""
    words, rng = getattr(population, "_vocabulary", None), Random(1)
    if words is None:
        return [Publication((Label(TOPIC).pair,))]
    return [words.draw_publication(rng, number) for number in range(4)]


@pytest.mark.parametrize("name", [*SMALL, *LONG])
def test_poison_of_a_publisher_costs_nobody_anything(name: str) -> None:
    world, duration_us, population = small(name)
    for number, publication in enumerate(honest(population)):
        at_us = population.first_us + (2 * number + 1) * 1_000_000
        publish_poison(world, publication, population.addresses(), at_us)
    world.run(duration_us)
    world.finish()
    refused = 0
    for address in population.addresses():
        machine = unwrap(world.machine(address))
        refused += sum(machine.refused.values()) if hasattr(machine, "refused") else 0
    assert refused, "the poison has come to somebody who opens it"


def planted(patch: pytest.MonkeyPatch) -> None:
    """Every machine fails on every notification that it opens and matches."""

    def fails(self: Conjunction, publication: Publication) -> bool:
        raise ZeroDivisionError

    for kind in Conjunction.__subclasses__():
        patch.setattr(kind, "matches", fails)
    patch.setattr(Conjunction, "matches", fails)


@pytest.mark.parametrize("name", SMALL)
def test_a_planted_fault_ends_the_run_in_every_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, duration_us, _ = small(name)
    planted(monkeypatch)
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        world.run(duration_us)


@pytest.mark.parametrize("name", SMALL)
def test_a_machine_goes_on_after_each_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contained faults, as on a network, are counted, and the failing message is not sent again for ever."""
    world, duration_us, population = small(name)
    world.contains_faults = True
    machines = [unwrap(world.machine(address)) for address in population.addresses()]
    for machine in machines:
        if hasattr(machine, "faults"):
            machine.faults.strict = False
    planted(monkeypatch)
    world.run(duration_us)
    faults = sum(machine.faults.count for machine in machines if hasattr(machine, "faults"))
    notes, readers = population.notes, len(population.addresses())
    assert 0 < faults <= 2 * notes * readers, "each notification fails once at each reader, or twice"
    assert world.deliveries == 0


@pytest.mark.parametrize("name", [name for name in scenario.packaged_names() if not name.startswith("flood")])
def test_every_machine_of_every_scenario_is_strict(name: str) -> None:
    """A machine that kept no faults, or contained them, could fail unseen."""
    known = scenario.load_scenario(name)
    population: Any = known.config.population
    if known.config.population.__class__.__name__ == "SybilPopulation":
        pytest.skip("its machines are of the membership alone")
    world = scenario.build_world(known, 1)
    machines = [machine for each in population.addresses() if (machine := world.machine(each)) is not None]
    kept = [
        faults
        for machine in machines
        for layer in iterate_layers(machine)
        if (faults := getattr(layer, "faults", None))
    ]
    hostless = [machine for machine in machines if not hasattr(unwrap(machine), "faults")]
    assert all(faults.strict for faults in kept)
    kinds = {kind.__module__ for machine in hostless for kind in type(unwrap(machine)).__mro__[:-1]}
    assert all(module.startswith("veilcast.sim.") for module in kinds), "only what is made for simulations keeps none"
    assert kept


def test_every_poison_is_malformed_or_a_legal_publication() -> None:
    publication = Publication((Label("a").pair, ("level", 3), ("kind", "red")))
    made = make_poisons(publication)
    assert len(made) > 15
    malformed = 0
    for what, poison in made.items():
        data = msgspec.msgpack.encode(poison)
        assert poison.pairs == publication.pairs
        try:
            content = decode_publication(b"\x93\xc4\x08streamno\x01" + data)
            Equal("kind", "red").matches(content.publication)
        except MalformedError:
            malformed += 1
            assert what
    assert 8 < malformed < len(made)
