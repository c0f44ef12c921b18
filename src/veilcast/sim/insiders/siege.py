"""Siege: a victim with hostile neighbours only (Sybils, n - 1 attack) has no node to hide among.

A topic that the victim subscribes to unprompted is one that it wants or covers. A note that it sends without having
received it is its own: in an n - 1 attack all other nodes belong to the coalition. No overlay can protect such a node.
The defences are to prevent the siege (see `mesh/certified.py`), and covers, which subscribe, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from veilcast.core.publication import notification_id
from veilcast.machine import Address, Machine
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify, Stem, Subscribe


class SiegeKnowledge:
    """The shared knowledge of besiegers. Only the length of a run bounds it."""

    def __init__(self, victims: Iterable[Address]) -> None:
        self.victims = frozenset(victims)
        self.given: set[tuple[Address, bytes]] = set()
        """Topics that a besieger subscribed to at a node, and notes that it sent there."""
        self.unprompted_requesters: set[Address] = set()
        """Nodes that subscribed to a topic unprompted."""
        self.originated: dict[Address, int] = {}
        """Number of notes that each node sent and no besieger had sent to it."""


class Besieger(ActiveInsider):
    """A besieger subscribes to nothing at a victim: what the victim then subscribes to is for its own sake."""

    def __init__(self, inner: Machine, siege: SiegeKnowledge) -> None:
        super().__init__(inner)
        self._siege = siege

    def on_message(self, message: Message, source: Address, now: int) -> None:
        given = self._siege.given
        if isinstance(message, Subscribe) and (source, message.token) not in given:
            self._siege.unprompted_requesters.add(source)
        elif isinstance(message, Notify | Stem) and (source, (name := _name(message))) not in given:
            given.add((source, name))
            self._siege.originated[source] = self._siege.originated.get(source, 0) + 1

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, Subscribe):
            if destination in self._siege.victims:
                return None
            self._siege.given.add((destination, message.token))
        elif isinstance(message, Notify | Stem):
            self._siege.given.add((destination, _name(message)))
        return message


def _name(message: Notify | Stem) -> bytes:
    return notification_id(message) if isinstance(message, Notify) else message.cargo
