"""The view of the routing state that key and content forwarding use, and the messages that they return.

An interface and two values. `broker` connects the router, the queues and the forwarders of keys and content. The
forwarders know replicas by their ids and clients by their links, never by addresses of other brokers. The caller
identifies the sender of each message by its link, and is responsible for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.machine import Address
from veilcast.wire.base import Message
from veilcast.wire.brokers import Routing

Peer: TypeAlias = ReplicaId | Address
"""The sender or receiver of a message: a replica under the current scheme, or a client by its link."""

Branch: TypeAlias = Scheme | Address
"""A next hop: a neighbouring node under the scheme that is used for it now, or a client."""


class Outgoing(NamedTuple):
    """A message to be sent."""

    to: Peer
    message: Message


class RoutingView(Protocol):
    """The claims and the overlay, as currently known. Callers must not cache the answers: claims come and go."""

    def own_replicas(self) -> Sequence[ReplicaId]:
        """This broker's own ids: under the newest scheme of its node, and under the previous one while that lasts."""

    def publisher_of(self, advertisement: bytes) -> bytes:
        """The certified key of the publisher; `StaleError` if the advertisement is not known here (any more)."""

    def source_of(self, advertisement: bytes) -> Branch:
        """The hop that the advertisement came from: a neighbouring node or the publisher's link. `StaleError` as
        above."""

    def subscriber_branches(self, advertisement: bytes) -> Sequence[Branch]:
        """Next hops, except the source, with a subscription that overlaps the advertisement."""

    def matching_branches(self, routing: Routing) -> Sequence[Branch]:
        """Next hops, except the advertisement's source, with a subscription that matches this publication."""

    def is_unacknowledged(self, replica: ReplicaId, message: Message) -> bool:
        """True if the replica has not acknowledged this message, which was sent to it."""

    def has_all_claims(self) -> bool:
        """True if this broker knows all claims that its neighbours know. Until then it neither routes nor makes
        statements on keys."""


def is_from(peer: Peer, hop: Branch) -> bool:
    """True if a message of this peer came from this hop. A node's replicas count under every scheme of the node."""
    if isinstance(peer, ReplicaId):
        return isinstance(hop, Scheme) and hop.node == peer.scheme.node
    return hop == peer


def all_replicas(scheme: Scheme) -> list[ReplicaId]:
    """The ids of all replicas of a node."""
    return [ReplicaId(scheme, index) for index in range(1, scheme.size + 1)]
