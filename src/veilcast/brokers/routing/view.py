"""What the passage of keys and of content asks of routing, and what both answer with.

An interface and two values, no code: `broker` stands between `routing`, the queues and the components that bring keys
(`passing`) and content (`carrying`) on. These know replicas by their places and clients by their links, never by
addresses of other brokers, and they are told who sent what: the caller answers for that, by its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.machine import Address
from veilcast.wire.brokers import Routing
from veilcast.wire.mesh import Message

Peer: TypeAlias = ReplicaId | Address
"""Who sent a message, or is sent one: a replica, under the scheme at hand, or a client by its link."""

Branch: TypeAlias = Scheme | Address
"""A next hop: a neighbouring node, under the scheme that is used for it now, or a client."""


class Outgoing(NamedTuple):
    """A message to be sent."""

    to: Peer
    message: Message


class RoutingView(Protocol):
    """What is known of claims, and of the overlay. Answers are never kept for long: claims come and go."""

    def own_replicas(self) -> Sequence[ReplicaId]:
        """Ours: under the newest scheme of our node, and under the one before while it lasts."""

    def publisher_of(self, advertisement: bytes) -> bytes:
        """The certified key of whoever advertised; `StaleError` if that is not known here, or no longer."""

    def source_of(self, advertisement: bytes) -> Branch:
        """The last hop of an advertisement: a neighbouring node or the publisher's link. `StaleError` as above."""

    def subscriber_branches(self, advertisement: bytes) -> Sequence[Branch]:
        """Next hops, but the last one, with a subscription that overlaps the advertisement."""

    def matching_branches(self, routing: Routing) -> Sequence[Branch]:
        """Next hops, but the advertisement's last, with a subscription that this publication matches."""

    def is_unacknowledged(self, place: ReplicaId, message: Message) -> bool:
        """Whether a replica has not acknowledged this message, which it was sent."""

    def has_all_claims(self) -> bool:
        """Whether all claims that neighbours know are known here. Until then we neither route nor say anything."""


def is_from(peer: Peer, hop: Branch) -> bool:
    """Whether a message of this peer came from this hop; a node's replicas count under every scheme of it."""
    if isinstance(peer, ReplicaId):
        return isinstance(hop, Scheme) and hop.node == peer.scheme.node
    return hop == peer


def all_replicas(scheme: Scheme) -> list[ReplicaId]:
    """All places of a node."""
    return [ReplicaId(scheme, index) for index in range(1, scheme.size + 1)]
