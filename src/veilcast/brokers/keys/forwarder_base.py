"""Keys through one broker: what both profiles share.

A component without links: messages come in by `receive`, with their sender, and go out by `outbox`; `handle` runs what
is due. `receive` raises a `RemoteError` for a rejected message. The two profiles are `hardened_forwarder` and
`paper_forwarder`. Both ask the router for the subscribers of an advertisement, and accept shares only from the hop that
the advertisement came from. A subscriber that lacks a key requests it along the same path back, and the publisher deals
the key again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys.scheme import ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import quiet_period_us
from veilcast.brokers.routing.view import Outgoing, Peer, RoutingView, all_replicas, is_from
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError
from veilcast.machine import Entropy
from veilcast.wire.base import Message
from veilcast.wire.brokers import WantKey


class ForwarderInputs(NamedTuple):
    """The parts of a broker that its key forwarder uses."""

    config: BrokerConfig
    routes: RoutingView
    replica_keys: ReplicaKeys
    signing: SigningKey
    entropy: Entropy
    evidence: FaultEvidence


class KeyForwarder(ABC):
    """The keys of one broker: key requests and the quiet period. A profile adds what happens to shares."""

    def __init__(self, inputs: ForwarderInputs, now: int) -> None:
        self.outbox: list[Outgoing] = []
        config, routes = inputs.config, inputs.routes
        self._config, self._routes, self._replica_keys = config, routes, inputs.replica_keys
        self._signing, self._entropy, self._evidence = inputs.signing, inputs.entropy, inputs.evidence
        self._max_faulty = max(replica.scheme.max_faulty for replica in routes.own_replicas())
        self._quiet_until = now + quiet_period_us(config.bound_us, self._max_faulty)
        self._requests = _KeyRequests(config.want_us)

    def sizes(self) -> dict[str, int]:
        return {"keys wanted": len(self._requests)}

    def end_quiet_period(self) -> None:
        """All nearby replicas have said that they never met this broker. So this is its first run, and it has forgotten
        nothing.

        Otherwise the broker is silent for a while on all keys that it sees: it may have got them before it was killed.
        """
        self._quiet_until = 0

    @property
    def quiet_until_us(self) -> int:
        """End of the quiet period, in microseconds."""
        return self._quiet_until

    def is_quiet(self, now: int) -> bool:
        return now < self._quiet_until or not self._routes.has_all_claims()

    def receive(self, message: Message, source: Peer, now: int) -> None:
        """Handle a message. Raises if it is rejected. Outgoing messages are in `outbox`.

        Due work runs first: it must be done whatever happens to the message.
        """
        self.handle(now)
        if isinstance(message, WantKey):
            self.outbox += self._forward_request(message, source, now)
        else:
            self.outbox += self._on_message(message, source, now)

    def on_advertisement(self, advertisement: bytes, now: int) -> None:
        """An advertisement has become known: after due work, handle the shares that came before it."""
        self.handle(now)
        self.outbox += self._on_early_shares(advertisement, now)

    @abstractmethod
    def handle(self, now: int) -> None: ...

    @abstractmethod
    def next_us(self) -> int | None: ...

    @abstractmethod
    def _on_message(self, message: Message, source: Peer, now: int) -> list[Outgoing]:
        """Handle a message about a share; raises if it is rejected."""

    @abstractmethod
    def _on_early_shares(self, advertisement: bytes, now: int) -> list[Outgoing]:
        """Handle the shares that came before the advertisement."""

    def _forward_request(self, message: WantKey, source: Peer, now: int) -> list[Outgoing]:
        """Forward a key request toward the publisher, once in a while, whichever and however many subscribers ask."""
        if not any(is_from(source, branch) for branch in self._routes.subscriber_branches(message.advertisement)):
            raise ForgedError("a key request from a hop without subscribers")
        before = self._routes.source_of(message.advertisement)
        if not self._requests.should_forward(message, source, now):
            return []
        return [Outgoing(to, message) for to in (all_replicas(before) if isinstance(before, Scheme) else [before])]


class _KeyRequests:
    """The recently forwarded key requests, bounded per peer, so that no peer uses up the requests of others.

    They are remembered by advertisement, too: a request under an advertisement that does not have the key blocks no
    other request.
    """

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._forwarded: dict[tuple[bytes, bytes], tuple[Peer, int]] = {}

    def __len__(self) -> int:
        return len(self._forwarded)

    def should_forward(self, request: WantKey, source: Peer, now: int) -> bool:
        while self._forwarded and (first := next(iter(self._forwarded.items())))[1][1] <= now:
            del self._forwarded[first[0]]
        name = (request.advertisement, request.key)
        if name in self._forwarded:
            return False
        of_source = sum(peer == source for peer, _ in self._forwarded.values())
        if of_source >= _REQUESTS_PER_PEER or len(self._forwarded) >= _REQUESTS_MAX:
            raise ExcessError("more key requests than one broker forwards")
        self._forwarded[name] = (source, now + self._keep_us)
        return True


_REQUESTS_PER_PEER: Final = 64
_REQUESTS_MAX: Final = 4096
