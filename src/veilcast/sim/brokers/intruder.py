"""A client of the Byzantine brokers: it has no grant, and tries to subscribe with the claims of others.

Byzantine brokers receive whole claims with their proofs (`EavesdroppingBroker`). The intruder connects to all replicas
of an edge node as a client does. It brings each claim three times: as its owner brought it, signed by itself, and in
its own name with its own proof. It does so at once, so that the other replicas of the edge receive the claim before its
owner's own message. Then it asks for the keys. All that it receives belongs to the coalition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.brokers.routing.claims import make_bring
from veilcast.crypto.sign import SIGNATURE, SigningKey
from veilcast.errors import RemoteError
from veilcast.machine import Address, Connect, Entropy, Event, Frame
from veilcast.sim.brokers.rewritten_streams import decode_or_none
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire.base import Message
from veilcast.wire.brokers import BringClaim, Claim, ClaimKind, ForwardContent, SessionItem, WantKey


@dataclass
class ClaimExchange:
    """Knowledge that Byzantine brokers give to the intruders: claims by id, and named keys; at most `HEARD_MAX` each.

    Messages from `friends`, the intruders themselves, are not recorded. `wake` is called for each new claim.
    """

    friends: tuple[Address, ...] = ()
    wake: Callable[[], None] = lambda: None
    claims: dict[bytes, BringClaim] = field(default_factory=dict)
    keys: dict[tuple[bytes, bytes], None] = field(default_factory=dict)

    def record(self, message: object) -> None:
        if isinstance(message, Claim):
            message = BringClaim(message, bytes(SIGNATURE))
        if isinstance(message, BringClaim) and message.claim.id not in self.claims and len(self.claims) < HEARD_MAX:
            self.claims[message.claim.id] = message
            self.wake()
        elif isinstance(message, ForwardContent) and len(self.keys) < HEARD_MAX:
            self.keys[message.routing.advertisement, message.routing.key] = None


class EavesdroppingBroker(MachineWrapper):
    """Wraps a Byzantine broker and tells the intruders what it receives."""

    exchange: ClaimExchange

    def receive(self, data: bytes, source: Address, now: int) -> None:
        message = decode_or_none(data) if source not in self.exchange.friends else None
        if isinstance(message, SessionItem):
            self.exchange.record(decode_or_none(message.cargo))
        super().receive(data, source, now)


class Intruder:
    """Connects to the replicas of one edge node, given with their keys. `edge` is that node's id."""

    version = 0

    def __init__(
        self, replicas: Mapping[Address, bytes], edge: bytes, exchange: ClaimExchange, entropy: Entropy, now: int
    ) -> None:
        self._replicas, self._edge, self._exchange, self._entropy = replicas, edge, exchange, entropy
        self._queues = PeerQueues(256, 8_192, 1 << 20, entropy)
        self._events: deque[Event] = deque(Connect(replica) for replica in replicas)
        self._due, self._rounds = now + EVERY_US, 0
        self._lost: dict[Address, None] = {}
        self._said: dict[bytes, None] = {}
        for replica in replicas:
            self._queues.expect(replica)
        self.bring_claims(now)

    def bring_claims(self, now: int) -> None:
        """Bring all claims that are new."""
        for name, brought in self._exchange.claims.items():
            if name not in self._said:
                self._said[name] = None
                self._tell_all(brought.claim, brought)
                signing, own = self._own(brought.claim)
                for peer, key in self._replicas.items():
                    for claim in (brought.claim, own):
                        self._queues.put(peer, make_bring(claim, signing, key))

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            self._queues.receive(data, source, now)
        except RemoteError:
            return

    def handle_timer(self, now: int) -> None:
        self._queues.handle(now)
        if now < self._due:
            return
        self._due = now + EVERY_US
        self._rounds += 1
        if self._lost:
            self._events.extend(Connect(peer) for peer in self._lost)
            self._lost.clear()
            self._said.clear()
            self.bring_claims(now)
        if self._rounds <= WANT_ROUNDS:
            for advertisement, key in self._exchange.keys:
                self._tell_all(WantKey(advertisement, key))

    def next_timer(self) -> int | None:
        owed = self._queues.next_us()
        return self._due if owed is None else min(owed, self._due)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._queues.frames(now, limit)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        self._queues.peer_up(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        """Connect again with the next timer."""
        self._queues.peer_lost(peer)
        self._lost[peer] = None

    def sizes(self) -> dict[str, int]:
        return {}

    def _tell_all(self, *messages: Message) -> None:
        for replica in self._replicas:
            for message in messages:
                self._queues.put(replica, message)

    def _own(self, claim: Claim) -> tuple[SigningKey, Claim]:
        """The same interest at this edge, in the intruder's own name, signed with a key that has no grant."""
        signing = SigningKey.generate(self._entropy)
        reader = signing.public if claim.kind is ClaimKind.ADVERTISEMENT else None
        own = msgspec.structs.replace(claim, edge=self._edge, holder=signing.public, reader=reader)
        return signing, msgspec.structs.replace(own, proof=signing.sign(own.body, purpose=b"veilcast/claim"))


EVERY_US: Final = 5_000_000
WANT_ROUNDS: Final = 8
"""Rounds in which the intruder asks for keys. Each key that is dealt again costs every broker a transfer, which
dominates the time of a run."""
HEARD_MAX: Final = 256
