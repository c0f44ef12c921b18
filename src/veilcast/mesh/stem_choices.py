"""Where stems go: the first relay of our own publications, and the next relay of what others hand us.

Every choice is by identity, which is a certified key, so that one member has one rank from however many addresses it
comes. Relays that this node chose as neighbours come before peers that came to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from veilcast.machine import Address
from veilcast.mesh.config import Hardening
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.habits import Habits
from veilcast.mesh.membership import Membership


class StemChoices:
    def __init__(self, rules: Hardening, habits: Habits, members: Membership, relay: FirstRelay) -> None:
        self._rules, self._habits, self._members, self._relay = rules, habits, members, relay

    def first_relay(self, lineage: bytes) -> Address | None:
        """The neighbour to which our own publications of this lineage go first, there or not."""
        if self._rules.relay.rule == "kept":
            return self._relay.address()
        names = {name.encode(): name for name in self._members.known}
        first = self._habits.first_relay(names, lineage)
        return None if first is None else names[first]

    def next_relay(self, predecessor: Address, neighbours: Iterable[Address]) -> Address | None:
        """The neighbour to which goes on what comes from `predecessor`."""
        about, identity = self._members.identity(predecessor), self._members.identity
        return min(
            (name for name in neighbours if name != predecessor),
            key=lambda name: (not self._members.is_chosen(name), self._habits.relay_rank(about, identity(name))),
            default=None,
        )

    def continues(self, predecessor: Address) -> bool:
        """Whether what comes from `predecessor` walks on past us, or ends here."""
        return self._habits.continues(self._members.identity(predecessor), self._rules.onward)
