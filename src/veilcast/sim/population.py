"""Populations: who lives in a scenario's world, how they are connected, and what they do there.

One frozen value per kind, read from the `[population]` table; `settle` puts the machines into a world and
schedules their doings; `facts` says what came of them. A mode of the network joins the simulator by one class
and its name in `AnyPopulation`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address, Publication
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.checkers import AtMostOnce, Bounded, Checker, Everyone, Intact
from veilcast.sim.flood import ID_SIZE, FloodNode
from veilcast.sim.foil.population import FoilPopulation
from veilcast.sim.graphs import check_small_world, watts_strogatz
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.mesh.sybils import SybilPopulation
from veilcast.sim.relay.population import RelayPopulation
from veilcast.sim.rng import derive_bytes, derive_rng
from veilcast.sim.tree.population import TreePopulation
from veilcast.sim.world import World


class FloodPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="flood"):
    """Flood machines on a small world, where someone publishes every so often."""

    nodes: int = 50
    neighbours: int = 4
    rewire: float = 0.1
    memory: int = 1024
    """Ids a node remembers; fewer than are under way at once, and it floods for ever."""
    messages: int = 20
    every_us: int = 100_000
    body_size: int = 64
    checks: tuple[str, ...] = ("once", "intact", "memory")

    def __post_init__(self) -> None:
        check_small_world(self.nodes, self.neighbours, self.rewire)
        for name in ("memory", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("messages", "body_size"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")

    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{i}") for i in range(self.nodes))

    def populate(self, world: World, duration_us: int) -> None:
        sent: dict[bytes, Publication] = {}
        addresses = self.addresses()
        for check in self.checks:
            world.watch(self._checker(check, sent))
        for address in addresses:
            world.add(address, lambda birth: FloodNode(self.memory))
            world.label(_TOPIC, address, "subscriber", world.start, world.start + duration_us)
        graph = watts_strogatz(self.nodes, self.neighbours, self.rewire, derive_rng(world.seed, "graph"))
        for u, v in graph:
            world.connect(addresses[u], addresses[v])
        rng = derive_rng(world.seed, "workload")
        for number in range(self.messages):
            self._plan_message(world, rng.choice(addresses), number, sent)

    def facts(self, world: World) -> dict[str, int]:
        """What a run has to say beyond the world's own counts: nothing, for a flood."""
        return {}

    def _plan_message(self, world: World, publisher: Address, number: int, sent: dict[bytes, Publication]) -> None:
        message = derive_bytes(world.seed, "message", str(number))[:ID_SIZE]
        body = (b"%d " % number * self.body_size)[: self.body_size]

        def publish(machine: FloodNode, now: int) -> None:
            sent[message] = Publication((), body)
            world.label(_TOPIC, publisher, "publisher", world.now, world.now)
            machine.publish(message, body)

        world.after(number * self.every_us, lambda: world.call(publisher, publish))

    def _checker(self, check: str, sent: dict[bytes, Publication]) -> Checker:
        match check:
            case "once":
                return AtMostOnce()
            case "intact":
                return Intact(sent)
            case "everyone":
                return Everyone(sent, self.addresses())
            case _:
                return Bounded("ids", self.memory, lambda machine: machine.remembered)


AnyPopulation: TypeAlias = (
    FloodPopulation
    | MeshPopulation
    | SybilPopulation
    | RelayPopulation
    | TreePopulation
    | FoilPopulation
    | BrokersPopulation
)

_CHECKS: Final = ("once", "intact", "everyone", "memory")
_TOPIC: Final = "flood"
