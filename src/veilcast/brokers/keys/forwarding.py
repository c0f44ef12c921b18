"""Keys through one broker: what both profiles share.

A component without links: messages come in by `receive`, with their sender, and go out by `outbox`; `handle` runs what
is due. `receive` raises a `RemoteError` for a rejected message. The two profiles are `forwarding_hardened` and
`forwarding_paper`. Both ask the router for the subscribers of an advertisement, and accept shares only from the hop
that the advertisement came from. A subscriber that lacks a key requests it along the same path back, and the publisher
deals the key again.
"""

from __future__ import annotations

from typing import Final

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys.forwarding_hardened import HardenedKeyForwarder
from veilcast.brokers.keys.forwarding_paper import PaperKeyForwarder
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import quiet_period_us
from veilcast.brokers.routing.view import Outgoing, Peer, RoutingView, all_replicas, is_from
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError
from veilcast.machine import Entropy
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FirstShare, NextShare, ShareReceived, WantKey
from veilcast.wire.mesh import Message


class KeyForwarder:
    """Of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: RoutingView,
        roster: ReplicaKeys,
        signing: SigningKey,
        entropy: Entropy,
        suspicions: FaultEvidence,
        now: int,
    ) -> None:
        self.outbox: list[Outgoing] = []
        self._routes = routes
        self._quiet_until = now + quiet_period_us(
            config.bound_us, max(place.scheme.max_faulty for place in routes.own_replicas())
        )
        self._wants = _KeyRequests(config.want_us)
        parts = (config, routes, roster, signing, entropy, suspicions)
        self._redistributing = HardenedKeyForwarder(*parts) if config.profile == "hardened" else None
        self._resplitting = PaperKeyForwarder(*parts) if config.profile == "paper" else None

    def sizes(self) -> dict[str, int]:
        ways = [way.sizes() for way in (self._redistributing, self._resplitting) if way is not None]
        return {name: size for way in ways for name, size in way.items()} | {"keys wanted": len(self._wants)}

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
            self.outbox += self._wanted(message, source, now)
        elif self._resplitting is not None:
            if not isinstance(message, FirstShare | NextShare):
                raise ForgedError("not a message of this profile")
            self.outbox += self._resplitting.on_share(message, source, now, quiet=self.is_quiet(now))
        elif self._redistributing is not None:
            self.outbox += self._receive(self._redistributing, message, source, now)

    def _receive(self, way: HardenedKeyForwarder, message: Message, source: Peer, now: int) -> list[Outgoing]:
        if isinstance(message, FirstShare):
            return way.on_first_share(message, source, now, quiet=self.is_quiet(now))
        if not isinstance(source, ReplicaId):
            raise ForgedError("a client has no part in how brokers bring keys on")
        match message:
            case NextShare():
                return way.on_next_share(message, source, now, quiet=self.is_quiet(now))
            case AgreementWord():
                return way.on_agreement_message(message, source, now)
            case DisputeDealing():
                return way.on_dispute(message, source, now)
            case ShareReceived():
                return way.on_acknowledgement(message, source, now)
        raise ForgedError("not a message about keys")

    def on_advertisement(self, advertisement: bytes, now: int) -> None:
        """An advertisement has become known: after due work, handle the shares that came before it."""
        self.handle(now)
        for way in (self._redistributing, self._resplitting):
            if way is not None:
                self.outbox += way.on_advertisement(advertisement, now, quiet=self.is_quiet(now))

    def handle(self, now: int) -> None:
        if self._redistributing is not None:
            self.outbox += self._redistributing.handle(now)

    def next_us(self) -> int | None:
        return self._redistributing.next_us() if self._redistributing is not None else None

    def _wanted(self, message: WantKey, source: Peer, now: int) -> list[Outgoing]:
        """Forward a key request toward the publisher, once in a while, whichever and however many subscribers ask."""
        if not any(is_from(source, branch) for branch in self._routes.subscriber_branches(message.advertisement)):
            raise ForgedError("a key is wanted by who has no readers of it")
        before = self._routes.source_of(message.advertisement)
        if not self._wants.should_forward(message, source, now):
            return []
        return [Outgoing(to, message) for to in (all_replicas(before) if isinstance(before, Scheme) else [before])]


class _KeyRequests:
    """The recently forwarded key requests, bounded per peer, so that no peer uses up the requests of others.

    They are remembered by advertisement, too: a request under an advertisement that does not have the key blocks no
    other request.
    """

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._asked: dict[tuple[bytes, bytes], tuple[Peer, int]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def should_forward(self, wanted: WantKey, source: Peer, now: int) -> bool:
        while self._asked and (first := next(iter(self._asked.items())))[1][1] <= now:
            del self._asked[first[0]]
        what = (wanted.advertisement, wanted.key)
        if what in self._asked:
            return False
        if (
            sum(peer == source for peer, _ in self._asked.values()) >= _REQUESTS_PER_PEER
            or len(self._asked) >= _REQUESTS_MAX
        ):
            raise ExcessError("more keys are wanted than we ask for")
        self._asked[what] = (source, now + self._keep_us)
        return True


_REQUESTS_PER_PEER: Final = 64
_REQUESTS_MAX: Final = 4096
