"""A mesh with a coalition of insiders: the publisher, the subscribers and the coalition are given, and a script wraps
each insider.

A coalition that besieges a victim must be next to it. So roles are given here, and not drawn as in a plain population.
The seed still draws the neighbourhood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from veilcast.machine import Address, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import MeshPopulation

InsiderScript: TypeAlias = Callable[[Machine, Birth], Machine]
"""Wraps an honest node."""


class InfiltratedPopulation(MeshPopulation, frozen=True, kw_only=True, tag="infiltrated"):
    publisher: Address
    subscriber_addresses: tuple[Address, ...]
    coalition: tuple[Address, ...]
    script: InsiderScript
    coalition_subscribes: bool = False
    """True if the insiders subscribe to the topic, too, so as to be in its mesh."""
    coalition_config: MeshConfig | None = None
    """Configuration of the insiders' nodes, if it differs."""

    def roles(self, seed: int) -> tuple[Address, tuple[Address, ...]]:
        return self.publisher, (
            *self.subscriber_addresses,
            *self.coalition,
        ) if self.coalition_subscribes else self.subscriber_addresses

    def neighbours_of(self, seed: int) -> dict[Address, list[Address]]:
        """The neighbours of every node."""
        neighbours: dict[Address, list[Address]] = {address: [] for address in self.addresses()}
        for u, v in self._graph(seed):
            neighbours[u].append(v)
            neighbours[v].append(u)
        return neighbours

    def _started(self, owner: MeshNodeOwner, address: Address) -> MachineFactory:
        if address not in self.coalition:
            return owner.start

        def start(birth: Birth) -> Machine:
            return self.script(owner.with_config(self.coalition_config or self.mesh).start(birth), birth)

        return start
