"""What the passage of keys and of content asks of routing, and what both answer with.

An interface and two values, no code: `broker` stands between `routing`, the queues and the components that bring keys
(`passing`) and content (`carrying`) on. These know replicas by their places and clients by their links, never by
addresses of other brokers, and they are told who sent what: the caller answers for that, by its links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.machine import Address
from veilcast.wire.brokers import Routing
from veilcast.wire.messages import Message

Peer: TypeAlias = Place | Address
"""Who sent a message, or is sent one: a replica, under the scheme at hand, or a client by its link."""

Branch: TypeAlias = Scheme | Address
"""A next hop: a neighbouring node, under the scheme that is used for it now, or a client."""


class Outgoing(NamedTuple):
    """A message to be sent."""

    to: Peer
    message: Message


class Routes(Protocol):
    """What is known of claims, and of the overlay. Answers are never kept for long: claims come and go."""

    def places(self) -> Sequence[Place]:
        """Ours: under the newest scheme of our node, and under the one before while it lasts."""

    def publisher(self, advertisement: bytes) -> bytes:
        """The certified key of whoever advertised; `StaleError` if that is not known here, or no longer."""

    def came_from(self, advertisement: bytes) -> Branch:
        """The last hop of an advertisement: a neighbouring node or the publisher's link. `StaleError` as above."""

    def readers(self, advertisement: bytes) -> Sequence[Branch]:
        """Next hops, but the last one, with a subscription that overlaps the advertisement."""

    def wanting(self, routing: Routing) -> Sequence[Branch]:
        """Next hops, but the advertisement's last, with a subscription that this publication matches."""

    def unheard(self, place: Place, message: Message) -> bool:
        """Whether a replica has not acknowledged this message, which it was sent."""

    def ready(self) -> bool:
        """Whether all claims that neighbours know are known here. Until then we neither route nor say anything."""


def is_from(peer: Peer, hop: Branch) -> bool:
    """Whether a message of this peer came from this hop; a node's replicas count under every scheme of it."""
    if isinstance(peer, Place):
        return isinstance(hop, Scheme) and hop.node == peer.scheme.node
    return hop == peer


def replicas(scheme: Scheme) -> list[Place]:
    """All places of a node."""
    return [Place(scheme, index) for index in range(1, scheme.size + 1)]
