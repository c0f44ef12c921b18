"""One population, in the simulator and over loopback sockets: the same bytes lead to the same events, except for time.

The same code builds the machines from the same seed. The driver differs, and so do times. So each node must tell its
owner the same: the same notes with the same ids, in the same order for each publisher; the same records, settled; the
same answers to subscriptions. The winner of a race depends on time, and so does the order of events of different kinds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import msgspec
import pytest

from support.virtual_time import VirtualTime
from veilcast.lab.runs.mesh.loopback_network import (
    LoopbackNetwork,
    LoopbackPopulation,
    WrapMachine,
    exclusive_addresses,
    keep_machine,
)
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event, Waiting
from veilcast.mesh.config import CoverConfig, HardeningConfig, MeshConfig, ShellGameConfig
from veilcast.sim.links import LinkDelays
from veilcast.sim.scenario import Scenario, ScenarioConfig, run_scenario
from veilcast.sim.wrappers import MachineWrapper

Story: TypeAlias = dict[tuple[Address, str, int], list[Event]]
"""Events by node, kind and, for notes, publisher; in order."""

SEED = 4
TENTH_US = 100_000
STEADY: dict[str, Any] = {"heartbeat_us": TENTH_US, "silent_periods": 100, "linger_periods": 16}
"""Quick, but patient with neighbours."""
PAPER = LoopbackPopulation(
    nodes=6,
    subscribers=0.5,
    publishers=2,
    notes=16,
    first_us=2_000_000,
    every_us=TENTH_US // 2,
    checks=("once", "turns", "intact", "readers", "everyone"),
    mesh=MeshConfig(**STEADY),
    link=LinkConfig("prompt"),
)
CASES = {
    "paper": PAPER,
    "paper, hiding": msgspec.structs.replace(
        PAPER, mesh=MeshConfig(**STEADY, cover=CoverConfig("one"), shellgame=ShellGameConfig("child", wait_us=500_000))
    ),
    "hardened": msgspec.structs.replace(
        PAPER,
        first_us=8_000_000,
        mesh=MeshConfig(
            "hardened",
            **STEADY,
            hardening=HardeningConfig(
                window_periods=8, lead_periods=16, bit_periods=1, uptime_periods=4, call_periods=200
            ),
        ),
        link=LinkConfig("cells", 16),
    ),
}
AFTER_US = 8_000_000


@pytest.mark.parametrize("name", CASES)
def test_a_population_has_the_same_story_in_the_simulator_and_on_sockets(name: str) -> None:
    population = CASES[name]
    simulated = by_simulator(population)
    assert by_sockets(population) == simulated
    notes = [events for (_, kind, _), events in simulated.items() if kind == "Delivered"]
    assert sum(map(len, notes)) == 3 * population.notes


def test_a_note_that_one_reader_misses_is_another_story() -> None:
    class Deaf(MachineWrapper):
        def next_event(self) -> Event | None:
            event = self._inner.next_event()
            missed = isinstance(event, Delivered) and event.note.publication.body == b"note 7"
            return self._inner.next_event() if missed else event

    reader = PAPER.roles(SEED)[1][0]
    simulated = by_simulator(PAPER)
    live = by_sockets(PAPER, lambda machine, address: Deaf(machine) if address == reader else machine)
    assert [key for key in simulated if live[key] != simulated[key]] == [(reader, "Delivered", 1)]


def by_simulator(population: LoopbackPopulation) -> Story:
    story = Book()
    config = ScenarioConfig("parity", duration_us(population), population, LinkDelays((1_000,)))
    outcome = run_scenario(Scenario("parity", config), SEED, on_event=story.take)
    assert outcome.violations == ()
    return story.entries


def by_sockets(population: LoopbackPopulation, around: WrapMachine = keep_machine) -> Story:
    story = Book()
    with exclusive_addresses():
        clock = VirtualTime()
        town = LoopbackNetwork(seed=SEED, on_event=story.take, around=around, steady_ns=clock.steady_ns)
        town.settle(population, duration_us(population))
        clock.run(town.run(duration_us(population)))
    assert around is not keep_machine or town.violations == []
    return story.entries


def duration_us(population: LoopbackPopulation) -> int:
    return population.first_us + population.notes * population.every_us + AFTER_US


class Book:
    """Records events without the parts that depend on time."""

    def __init__(self) -> None:
        self.entries: Story = defaultdict(list)

    def take(self, address: Address, event: Event, now: int) -> None:
        publisher = 0
        if isinstance(event, Delivered):
            publisher = int(event.note.publication.body.split()[1]) % 2
        elif isinstance(event, Waiting):
            event = Waiting(event.number, None)
        self.entries[address, type(event).__name__, publisher].append(event)
