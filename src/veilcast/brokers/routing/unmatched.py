"""Subscriptions whose proof matches no known advertisement, until one arrives or the subscription ends.

Anyone can create such entries: a subscriber's proof cannot be verified before the topic is advertised. So their number
is bounded. Each neighbouring node has a part of its own, because its subscriptions have passed other brokers, and a
broker that has just started hears of all subscribers before it hears of the publisher. The rest is for clients: when it
is full, the client with the most entries loses its oldest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeVar

from veilcast.brokers.overlay import hop_node
from veilcast.machine import Address
from veilcast.wire.brokers import Claim

K = TypeVar("K")


class UnmatchedSubscription(NamedTuple):
    """`reported` has the claim by the replica that reported it, because the proofs may differ."""

    reported: dict[bytes, Claim]
    hop: Address
    subject: Hashable

    @property
    def claim(self) -> Claim:
        return next(iter(self.reported.values()))


class UnmatchedSubscriptions:
    """Bounded: `most` of clients, and `most_of_node` of each neighbouring node."""

    def __init__(self, most: int, most_of_node: int) -> None:
        self._clients_max, self._node_max = most, most_of_node
        self._entries: dict[bytes, UnmatchedSubscription] = {}
        self._by_hop: dict[Address, dict[bytes, None]] = {}
        self._of_clients = 0
        self._by_subject: dict[Hashable, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._entries

    def get(self, id_: bytes) -> UnmatchedSubscription | None:
        return self._entries.get(id_)

    def with_subject(self, subject: Hashable) -> list[tuple[bytes, UnmatchedSubscription]]:
        """The subscriptions that an advertisement of this subject may match."""
        return [(id_, self._entries[id_]) for id_ in self._by_subject.get(subject, ())]

    def eviction_candidate(self, hop: Address) -> bytes | None:
        """The subscription to evict for one more of this hop; None if there is room."""
        mine = self._by_hop.get(hop, {})
        if hop_node(hop) is not None:
            return next(iter(mine)) if len(mine) >= self._node_max else None
        if self._of_clients < self._clients_max:
            return None
        most = max((each for each in self._by_hop if hop_node(each) is None), key=lambda each: len(self._by_hop[each]))
        return next(iter(self._by_hop[most] if len(self._by_hop[most]) > len(mine) else mine))

    def add(self, id_: bytes, entry: UnmatchedSubscription) -> None:
        self._entries[id_] = entry
        self._by_subject.setdefault(entry.subject, {})[id_] = None
        self._by_hop.setdefault(entry.hop, {})[id_] = None
        self._of_clients += hop_node(entry.hop) is None

    def pop(self, id_: bytes) -> UnmatchedSubscription | None:
        entry = self._entries.pop(id_, None)
        if entry is not None:
            _remove(self._by_subject, entry.subject, id_)
            _remove(self._by_hop, entry.hop, id_)
            self._of_clients -= hop_node(entry.hop) is None
        return entry


def _remove(table: dict[K, dict[bytes, None]], key: K, id_: bytes) -> None:
    del table[key][id_]
    if not table[key]:
        del table[key]
