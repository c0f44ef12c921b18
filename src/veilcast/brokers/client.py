"""The client: a member that publishes and subscribes through an overlay of brokers, some of them Byzantine (P4).

The client is linked with all replicas of one virtual node, its edge node, and trusts none of them alone. It stores only
its publications. A publication leaves once it is on disk, and is sent again until enough replicas confirm that all its
subscribers have it. The client's claims are the same after every restart. For the brokers, a content is done when the
application has acknowledged the notification.

Brokers never send a publication back to the client that it came from. So the client itself delivers its own
publications to its own subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from veilcast.authority.keyring import Keyring
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.publisher import ContentPublisher
from veilcast.brokers.content.sealed_publication import encode_publication
from veilcast.brokers.content.subscriber import ContentSubscriber, SubscriberCallbacks
from veilcast.brokers.edge_links import EdgeLinks
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys.reassembly import KeyReassembly
from veilcast.brokers.keys.scheme import ReplicaId, majority
from veilcast.brokers.overlay import SignedOverlay
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.brokers.routing.renewal import WITHDRAWALS_RECORD, ClaimRenewal, ValidityPeriods
from veilcast.brokers.routing.subscriber_advertisements import VerifiedAdvertisements
from veilcast.core.inbox import Inbox, ReceiptStub
from veilcast.core.member import OutboxMember, first_event
from veilcast.core.member_topics import MemberTopics
from veilcast.core.outbox import Outbox, PendingPublication, publication_id
from veilcast.core.timers import earliest
from veilcast.crypto.derive import derive
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Interest, Note
from veilcast.topics import Conjunction, Schema
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    Claim,
    ConfirmContent,
    ForwardContent,
    LastShare,
    PushShare,
    RequestBlocks,
    WantKey,
    WithdrawClaim,
)


class BrokerClient(OutboxMember):
    """A `NodeMember` (node.modes), with the notices of `Peers` and `Durable`.

    `edge` is the name of its virtual node, `address` its own name. `records` are the records that earlier runs stored
    and did not settle. `refused` counts rejected messages by kind of error. `excess` counts delivered publications
    that matched no subscription.
    """

    def __init__(
        self,
        config: BrokerClientConfig,
        keyring: Keyring,
        overlay: SignedOverlay,
        operator: bytes,
        edge: str,
        address: Address,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
    ) -> None:
        super().__init__()
        stored = records or {}
        self.address = address
        self._config = config
        self._hardened = config.profile == "hardened"
        self._topics = MemberTopics(config.profile, keyring)
        self._codec = predicate_codec(config.profile)
        self._edge = EdgeLinks(config, overlay, operator, edge, rng, entropy, now)
        self._evidence = FaultEvidence(config.suspects_max, self._edge.replica_keys)
        self._claims = ClaimRenewal(
            config,
            ValidityPeriods(config.profile, keyring.epoch_us, config.lease_us),
            self._topics,
            self._codec,
            self._edge.node,
            derive(keyring.membership.link, b"vc/brokers-edge", operator, edge.encode()),
            self._edge.send_claim,
            rng,
            now,
            stored.get(WITHDRAWALS_RECORD),
        )
        self._outbox = Outbox(entropy, stored, config.records_max, WITHDRAWALS_RECORD)
        self._publisher = ContentPublisher(config, self._claims, self._codec, self._edge, self._outbox, rng, entropy)
        self._advertisements = VerifiedAdvertisements(
            keyring, self._topics, hardened=self._hardened, most=config.advertised_max
        )
        self._reassembly = KeyReassembly(
            hardened=self._hardened, replica_keys=self._edge.replica_keys, evidence=self._evidence, most=config.keys_max
        )
        self._subscriber = ContentSubscriber(
            config,
            self._advertisements,
            self._reassembly,
            self._edge,
            SubscriberCallbacks(self._has_room, self._deliver, self._refuse),
            self._evidence,
            self.faults,
            rng,
        )
        self._inbox = Inbox(unread_max=config.unread_max, seen_max=config.seen_max, again_us=config.deliver_again_us)
        self._own: dict[bytes, tuple[int, PendingPublication]] = {}
        """Own publications that match own subscriptions, until the application acknowledges them."""
        self._own_later: dict[bytes, list[int]] = {}
        """Own publications that wait for room in the inbox, with their subscriptions."""
        self._earlier_records = frozenset(stored)
        self._send_unsettled(now)

    # --- the application

    def check_room(self) -> None:
        """`LocalError` if too many publications are pending."""
        self._outbox.check_capacity()

    def keep(self, drafts: Sequence[PendingPublication]) -> int:
        """Ask for the drafted publications to be stored. They are sent once they are on disk."""
        self.version += 1
        return self._outbox.keep(drafts)

    def withdraw(self, record: int, now: int) -> None:
        self.version += 1
        self._publisher.withdraw(record)
        self._outbox.drop(record)

    def subscribe(self, interest: Interest, now: int) -> int:
        number = super().subscribe(interest, now)
        for record, pending in self._publisher.unconfirmed():
            if record in self._earlier_records:  # An earlier run may have had this subscription.
                self._deliver_own(record, pending, [number], now)
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        self.version += 1
        self._claims.remove(number)
        self._on_acknowledged(self._inbox.end_subscription(number), now)

    def acknowledge(self, note: bytes, now: int) -> None:
        self.version += 1
        self._on_acknowledged(self._inbox.acknowledge(note), now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._receive_frame(data, source, now))
        self._follow(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        self._edge.handle(now)
        self._claims.handle(now)
        self._publisher.handle(now)
        for expired in self._advertisements.handle(now):
            self._subscriber.end_advertisement(expired)
        self._subscriber.handle(now)
        self._inbox.handle(now)
        self._follow(now)

    def next_timer(self) -> int | None:
        timed = (self._edge, self._claims, self._publisher, self._advertisements, self._subscriber, self._inbox)
        return earliest(*(part.next_us() for part in timed))

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._edge.frames(now, limit)

    def next_event(self) -> Event | None:
        parts = (self._claims, self._edge, self._publisher, self._outbox)
        return first_event(*(part.next_event for part in parts), self._inbox.next_delivery)

    def stored(self, record: int, now: int) -> None:
        if record == WITHDRAWALS_RECORD:
            self._claims.stored()
        super().stored(record, now)

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        self._edge.peer_up(peer)
        self._follow(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._edge.peer_lost(peer, now)
        self._follow(now)

    # --- status

    def delay(self, now: int) -> Delay | None:
        delay = self._publisher.delay(now)
        if delay is None:
            return None
        up, size = self.edge_up()
        if up < majority(size):
            return Delay("too few replicas of the edge node answer")
        try:
            self._topics.keys(self._publisher.unconfirmed()[-1][1].topic, self._topics.epoch(now))
        except LocalError:
            return Delay("no grant of the keyring allows to publish on its topic now")
        return delay

    def unconfirmed_us(self, now: int) -> int:
        """Age of the oldest stuck publication since the brokers got it, in microseconds; 0 without one."""
        return self._publisher.unconfirmed_us(now)

    @property
    def signed(self) -> SignedOverlay:
        """The overlay that the client follows. It may be newer than the one that the client was built with."""
        return self._edge.signed

    def edge_up(self) -> tuple[int, int]:
        """Connected replicas of the edge node, and all its replicas."""
        return len(self._edge.connected_replicas()), self._edge.replica_count

    def suspects(self) -> list[ReplicaId]:
        """Replicas that are proven Byzantine to this client."""
        return self._evidence.proven_faulty()

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table."""
        return {
            "queued": len(self._edge),
            "claims": len(self._claims),
            "subscriptions": len(self._claims.subscriptions),
            "advertised": len(self._advertisements),
            "keys": len(self._reassembly),
            "contents": len(self._subscriber),
            "opened": self._subscriber.opened_count,
            "done": self._subscriber.done_count,
            "inbox": len(self._inbox),
            "seen": self._inbox.seen_count,
            "pending": len(self._outbox),
            "sealing": self._publisher.key_count,
            "suspects": len(self._evidence),
        }

    # --- internals

    def _schema_of(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def _check_sendable(self, pending: PendingPublication, now: int) -> None:
        keys = self._topics.keys(pending.topic, self._topics.epoch(now))
        if keys.signing is None:
            raise LocalError(f"only a publisher of {pending.topic!r} can publish on it")
        encode_publication(pending, padded=self._hardened)
        self._codec.encode_publication(keys, pending.content.publication)

    def _send(self, record: int, pending: PendingPublication, now: int) -> None:
        self._publisher.send(record, pending, now)
        numbers = [number for subscription in self._claims.subscriptions for number in subscription.numbers]
        self._deliver_own(record, pending, numbers, now)

    def _add_subscription(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self._claims.add(number, topic, interest, now)

    def _receive_frame(self, data: bytes, source: Address, now: int) -> None:
        message = self._edge.receive(data, source, now)
        if message is not None:
            self._on_message(message, source, now)

    def _on_message(self, message: Message, source: Address, now: int) -> None:
        ids = self._edge.ids_of(source)
        match message:
            case Claim():
                self._advertisements.add(message, now)
            case ForwardContent():
                self._subscriber.on_carry(message, source, ids[0], now)
            case LastShare():
                self._subscriber.on_share(message, ids, now)
            case PushShare():
                self._subscriber.on_share(LastShare(message.advertisement, message.share), ids, now)
            case ConfirmContent():
                self._publisher.on_done(message, source)
            case RequestBlocks():
                self._publisher.on_missing(message, ids[0].index)
            case WantKey():
                self._publisher.on_key_request(message, now)
            case WithdrawClaim():
                pass  # Content in transit under the claim is still accepted; the claim expires by itself.
            case _:
                raise MalformedError("not for a client")

    def _follow(self, now: int) -> None:
        """Send all active claims to replicas that restarted, and update whether a majority of the edge node is
        connected."""
        self._edge.close_stalled(now)
        for peer in self._edge.take_restarted():
            for owned in self._claims.active_claims(now):
                self._edge.send_claim_to(peer, owned)
        self._claims.set_connected(self._edge.has_majority, now)
        for notice in self._claims.take_notices():
            self._publisher.on_advertised(notice)

    def _has_room(self) -> bool:
        return len(self._inbox) < self._config.unread_max

    def _matching(self, pending: PendingPublication) -> list[int]:
        """The numbers of the subscriptions that the publication matches."""
        publication = pending.content.publication
        return [
            number
            for subscription in self._claims.subscriptions
            if subscription.topic == pending.topic and subscription.interest.matches(publication)
            for number in subscription.numbers
        ]

    def _deliver(self, pending: PendingPublication, content: bytes, now: int) -> bool:
        numbers = self._matching(pending)
        self.excess += not numbers
        note = Note(publication_id(pending), pending.content.publication)
        return self._inbox.put(numbers, note, (content, _CONTENT), now)

    def _deliver_own(self, record: int, pending: PendingPublication, among: Sequence[int], now: int) -> None:
        numbers, id_ = [number for number in self._matching(pending) if number in among], publication_id(pending)
        if numbers:
            self._publisher.hold_for_self(record, pending)
            self._own[id_] = (record, pending)
            self._put_own(id_, numbers, now)

    def _put_own(self, id_: bytes, numbers: list[int], now: int) -> None:
        if not self._has_room():
            self._own_later[id_] = numbers
            return
        pending = self._own[id_][1]
        subscribed = [number for subscription in self._claims.subscriptions for number in subscription.numbers]
        remaining = [number for number in subscribed if number in numbers]
        if self._inbox.put(remaining, Note(id_, pending.content.publication), (id_, _OWN), now):
            self._on_acknowledged([(id_, _OWN)], now)

    def _on_acknowledged(self, stubs: Sequence[ReceiptStub], now: int) -> None:
        """The application has acknowledged these."""
        if not stubs:
            return
        for name, kind in stubs:
            if kind == _CONTENT:
                self._subscriber.confirm(name, now)
            elif (own := self._own.pop(name, None)) is not None:
                self._publisher.release_held(*own)
        later, self._own_later = self._own_later, {}
        for id_, numbers in later.items():
            self._put_own(id_, numbers, now)
        self._subscriber.retry_pending(now)


_CONTENT: Final = b"content"
_OWN: Final = b"own"
