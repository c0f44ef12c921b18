"""A hardened mesh in the simulator, most of whose nodes are killed at one moment."""

from __future__ import annotations

from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import MeshConfig
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World

NODES, KILLED, CLAIM = 64, 0.8, 10
BEAT_US, EVERY_US = 1_000_000, 500_000
FIRST_US, CRASH_US, AFTER_US = 150 * BEAT_US, 165 * BEAT_US, 20 * BEAT_US
"""The root is elected and the mesh has formed before the first note is published."""
MESH = MeshConfig(
    profile="hardened", membership="certified", neighbours_max=24, address_bytes_max=8, heartbeat_us=BEAT_US
)


def beats_until_heard(seed: int, links: bool, nodes: int = NODES) -> tuple[float | None, int]:
    """Heartbeats from the crash until all surviving subscribers have news, or None; and the notes that some did not
    get."""
    return FormedMesh(seed, links, nodes).crash()


class FormedMesh:
    """A mesh that has formed, and in which notes arrive."""

    def __init__(self, seed: int, links: bool, nodes: int = NODES) -> None:
        self._links, self._seed = links, seed
        self._people = MeshPopulation(
            nodes,
            subscribers=0.3,
            notes=(CRASH_US - FIRST_US + AFTER_US) // EVERY_US,
            first_us=FIRST_US,
            every_us=EVERY_US,
            join_us=BEAT_US // 4,
            mesh=MESH,
            checks=("once", "order", "intact", "readers"),
            link=LinkConfig() if links else None,
        )
        self._read: dict[bytes, dict[Address, int]] = {}
        self._world = World(seed=seed, on_event=self._seen, epoch_us=3_600_000_000)
        self._people.populate(self._world, 0)
        self._world.run(CRASH_US)
        readers = self._people.roles(seed)[1]
        whole = sum(len(by) == len(readers) for by in self._read.values())
        assert whole >= 0.8 * (CRASH_US - FIRST_US) // EVERY_US, "the mesh did not stand before the crash"

    def crash(self, draw: int = 0) -> tuple[float | None, int]:
        """Kill most nodes, in one of many ways, and return the effect on the others."""
        world, read = self._world, self._read
        publisher, readers = self._people.roles(self._seed)
        others = [address for address in self._people.addresses() if address != publisher]
        killed = derive_rng(self._seed, f"killed {draw}").sample(others, round(KILLED * self._people.nodes))
        survivors = [reader for reader in readers if reader not in killed] or [readers[0]]
        for address in killed:
            if address not in survivors:
                (world.crash if self._links else world.pause)(address)
        crash_us, first = world.now, (CRASH_US - FIRST_US) // EVERY_US
        world.run(AFTER_US)
        later = [b"note %d" % number for number in range(first, self._people.notes)]
        whole = [read[body] for body in later if all(reader in read.get(body, {}) for reader in survivors)]
        heard_us = min((max(by[reader] for reader in survivors) for by in whole), default=None)
        lost = sum(any(reader not in read.get(body, {}) for reader in survivors) for body in later[: -2 * CLAIM])
        return None if heard_us is None else (heard_us - crash_us) / BEAT_US, lost

    def _seen(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._read.setdefault(event.note.publication.body, {}).setdefault(address, now)
