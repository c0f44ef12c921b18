"""The nodes near one replica or client: the schemes of each that count now, and what follows from all of them.

What follows is looked up at every message, and changes with an order only. So it is made once, and made again when the
deployment says that something has changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from veilcast.brokers.overlay import NodeEntry, Replica
from veilcast.brokers.sharing.scheme import Place


@dataclass(slots=True)
class Node:
    """A node near: the scheme to send by, the one to come, and the one that ends."""

    entry: NodeEntry
    next: NodeEntry | None = None
    old: NodeEntry | None = None
    late_us: int | None = None
    settle_us: int = 0
    until_us: int = 0

    @property
    def settled(self) -> bool:
        return self.next is None and self.old is None

    def entries(self) -> list[NodeEntry]:
        return [entry for entry in (self.entry, self.next, self.old) if entry is not None]


class Around(NamedTuple):
    """By key: the replicas to be linked with, and the places of all, the one to send by first."""

    linked: dict[bytes, Replica]
    places: dict[bytes, list[Place]]
    settled: bool


def around(nodes: Collection[Node], without: Collection[bytes | None]) -> Around:
    """Of these nodes; with replicas of these keys, nobody is linked."""
    made = Around({}, {}, all(node.settled for node in nodes))
    for node in nodes:
        for entry in node.entries():
            scheme = entry.scheme
            for index, replica in enumerate(entry.replicas, 1):
                made.places.setdefault(replica.key, []).append(Place(scheme, index))
        for entry in reversed(node.entries()):
            made.linked.update((replica.key, replica) for replica in entry.replicas if replica.key not in without)
    return made
