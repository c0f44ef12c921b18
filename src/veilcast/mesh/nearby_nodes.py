"""The nodes within some hops in the overlay, which exchange heartbeats whether they are in a mesh or not.

Every node tells its neighbours who is near it, and how many hops away; the nearest come first. From its neighbours'
surroundings a node knows all nodes within its reach. These pairs follow from the overlay alone, so an observer of
heartbeats learns nothing of topics from them. A message names at most seven eighths of the nodes that the largest
message of a swap names, since it has a byte more for each: so it fits into a heartbeat.

A node that fails is still counted by neighbours that have not noticed it. Hops only grow while such news goes round,
and end at the reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from veilcast.errors import MalformedError
from veilcast.machine import Address
from veilcast.wire.mesh import Surroundings


class NearbyNodes:
    """Bounded: a message for each neighbour that the caller admits."""

    def __init__(self, reach: int, neighbours_max: int) -> None:
        self._reach, self._names_max, self._neighbours_max = reach, 7 * neighbours_max // 4, neighbours_max
        self._heard: dict[Address, Surroundings] = {}
        self._told: dict[Address, Surroundings] = {}
        self._hops: dict[Address, int] = {}
        self._of: tuple[Address, ...] | None = None

    def __len__(self) -> int:
        return len(self._heard) + len(self._told)

    def hear(self, message: Surroundings, source: Address) -> None:
        if len(message.names) != len(message.hops):
            raise MalformedError("surroundings have a distance for each name")
        if self._reach and (source in self._heard or len(self._heard) < self._neighbours_max):
            self._heard[source] = message
            self._of = None

    def forget_told(self, neighbour: Address) -> None:
        """The neighbour may have missed what it was told."""
        self._told.pop(neighbour, None)

    def names(self, neighbours: Collection[Address]) -> Collection[Address]:
        """All nodes within reach that are not neighbours. `neighbours` are the present ones."""
        return [name for name, hops in self._within_reach(neighbours).items() if hops > 1]

    def take_news(self, neighbours: Collection[Address]) -> Iterator[tuple[Address, Surroundings]]:
        """The message for each neighbour that has not been told yet."""
        near = sorted((hops, name) for name, hops in self._within_reach(neighbours).items() if hops < self._reach)
        for neighbour in neighbours:
            told = [each for each in near if each[1] != neighbour][: self._names_max]
            message = Surroundings(tuple(name for _, name in told), bytes(hops for hops, _ in told))
            if self._told.get(neighbour) != message:
                self._told[neighbour] = message
                yield neighbour, message

    def _within_reach(self, neighbours: Collection[Address]) -> dict[Address, int]:
        """Hops to each node within reach; this node itself is not among them."""
        if self._of != tuple(neighbours):
            self._of = tuple(neighbours)
            present = dict.fromkeys(neighbours)
            self._heard = {name: heard for name, heard in self._heard.items() if name in present}
            self._told = {name: told for name, told in self._told.items() if name in present}
            found = dict.fromkeys(neighbours, 1)
            for heard in self._heard.values():
                for name, hops in zip(heard.names, heard.hops, strict=True):
                    if 0 < hops < self._reach:
                        found[Address(name)] = min(found.get(Address(name), self._reach), hops + 1)
            nearest = sorted(found.items(), key=lambda each: (each[1], each[0]))[: self._names_max]
            self._hops = dict(nearest)
        return self._hops
