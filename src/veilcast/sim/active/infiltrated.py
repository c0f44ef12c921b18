"""A mesh with hostile members in it: who they are, who publishes and who reads is said, and each has its script.

A coalition that wants to besiege a victim is where the victim is. So roles are not drawn here, as in a plain
population, but handed in; the neighbourhood is still drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from veilcast.machine import Address, Machine
from veilcast.mesh.config import Config
from veilcast.sim.host import Birth, Factory
from veilcast.sim.mesh import MeshPopulation
from veilcast.sim.mesh_owners import Owner

Script: TypeAlias = Callable[[Machine, Birth], Machine]
"""Wraps an honest node."""


class Infiltrated(MeshPopulation, frozen=True, kw_only=True, tag="infiltrated"):
    publisher: Address
    readers: tuple[Address, ...]
    coalition: tuple[Address, ...]
    script: Script
    joins: bool = False
    """Whether they read the topic, too, so as to be in its mesh."""
    told: Config | None = None
    """What their nodes are told, where that is something else."""

    def roles(self, seed: int) -> tuple[Address, tuple[Address, ...]]:
        return self.publisher, (*self.readers, *self.coalition) if self.joins else self.readers

    def neighbours_of(self, seed: int) -> dict[Address, list[Address]]:
        """Everybody's."""
        known: dict[Address, list[Address]] = {address: [] for address in self.addresses()}
        for u, v in self._graph(seed):
            known[u].append(v)
            known[v].append(u)
        return known

    def _started(self, owner: Owner, address: Address) -> Factory:
        if address not in self.coalition:
            return owner.start

        def start(birth: Birth) -> Machine:
            return self.script(owner.told(self.told or self.mesh).start(birth), birth)

        return start
