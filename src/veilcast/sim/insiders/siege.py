"""Sybils beside a victim, and n - 1: a node with none but hostile neighbours has nobody to be hidden among.

What it asks for without having been asked it wants itself, or covers. What it sends without having got it is its own
(n - 1: all the others are ours, so what is left is the victim's). No overlay can help such a node; what can is to keep
it from being besieged (see `mesh/certified.py`), and covers, who ask too.
"""

from __future__ import annotations

from collections.abc import Iterable

from veilcast.core.publication import notification_id
from veilcast.machine import Address, Machine
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.mesh import Message, Notify, Stem, Subscribe


class SiegeKnowledge:
    """What besiegers tell one another. Nothing bounds it but the length of a run."""

    def __init__(self, victims: Iterable[Address]) -> None:
        self.victims = frozenset(victims)
        self.given: set[tuple[Address, bytes]] = set()
        """Who was asked for what topic, or sent what, by one of us."""
        self.unprompted_requesters: set[Address] = set()
        """Who asked for a topic without having been asked."""
        self.originated: dict[Address, int] = {}
        """Who sent how many notes that none of us had sent to it."""


class Besieger(ActiveInsider):
    """One of those who know what all of them gave to whom. It asks no victim for anything: what that asks for then is
    for its own sake."""

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
