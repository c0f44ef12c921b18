"""The broker: one replica of a virtual node. It routes claims and forwards keys and content (P4).

The broker connects its parts: `broker_links` has the streams, `operations.deployment` says with which replicas and by
which scheme to work, `routing.router` decides which claims to believe, `keys.forwarder_base` and
`content.block_forwarder` forward keys and content. This file decides which peer may send which message:

- a client sends its own claims and publications;
- replicas of neighbouring nodes send claims, keys and content;
- replicas of the same node agree with this one on keys.

A broker stores nothing on disk. After a crash it restarts empty, copies the claims from its neighbours, and forwards
nothing until then. Until then it counts as one of the f faulty replicas that a node tolerates.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from random import Random

from veilcast.brokers.broker_links import BrokerLinks
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.content.block_forwarder import BlockForwarder
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.forwarder_base import ForwarderInputs, KeyForwarder
from veilcast.brokers.keys.hardened_forwarder import HardenedKeyForwarder
from veilcast.brokers.keys.paper_forwarder import PaperKeyForwarder
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.operations.deployment import Deployment, RedeployTimes
from veilcast.brokers.operations.detachment import RemainingWork
from veilcast.brokers.overlay import SignedOverlay, node_of_hop
from veilcast.brokers.quota import AwaitedClaims
from veilcast.brokers.routing.claims import check_bring
from veilcast.brokers.routing.router import Router
from veilcast.brokers.routing.view import Branch, Outgoing
from veilcast.core.timers import earliest
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, MalformedError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.machine import Address, Entropy, Event, Frame, Listen
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    BringClaim,
    Claim,
    ConfirmContent,
    CopyRouting,
    DisputeDealing,
    FirstShare,
    ForwardContent,
    NextShare,
    OverlayOrder,
    RequestBlocks,
    Routing,
    RoutingCopied,
    ShareReceived,
    VersionAdopted,
    WantKey,
    WithdrawClaim,
)


class Broker:
    """A `Machine`, with the notices of `Peers`. It emits `Listen("broker")`.

    `overlay` is signed with the `operator`'s key and lists the key of `signing` among its replicas. `root` is the
    authority's key. `refused` counts rejected messages by kind of error.
    """

    def __init__(
        self,
        config: BrokerConfig,
        overlay: SignedOverlay,
        operator: bytes,
        address: Address,
        signing: SigningKey,
        root: bytes,
        epoch_us: int,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        described = overlay.verify(operator)
        replica = described.replica_id(signing.public)
        if replica is None:
            raise ConfigError("no virtual node of the overlay has a replica with this key")
        self.address, self.signing, self.key = address, signing, signing.public
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.version = 0
        self._home = replica.scheme.node
        pace = RedeployTimes(config.prepare_us, config.settle_us, config.linger_us, config.copy_us)
        self._deployment = Deployment(
            overlay, operator, self._home, self.key, profile=config.profile, pace=pace, now=now
        )
        self._router = Router(config, described, self._home, self._deployment.includes_honest, root, epoch_us)
        self._links = BrokerLinks(config, self.key, lambda client: self._router.claims_of(client) > 0, rng, entropy)
        self._evidence = FaultEvidence(config.suspects_max, self._deployment.replica_keys)
        routes = BrokerRoutingView(self._deployment, self._router, self._links, self.key)
        forwarder = HardenedKeyForwarder if config.profile == "hardened" else PaperKeyForwarder
        inputs = ForwarderInputs(config, routes, self._deployment.replica_keys, signing, entropy, self._evidence)
        self._key_forwarder: KeyForwarder = forwarder(inputs, now)
        self._content_forwarder = BlockForwarder(config, routes, self._evidence)
        self._awaited_claims = AwaitedClaims(config.claims_each)
        self._quiet_ended = False
        self._events: deque[Event] = deque([Listen("broker")])
        self._follow_deployment(now)

    # --- the operator

    def accept_order(self, data: bytes, now: int) -> None:
        """Accept an order from the operator. Raises the same errors as for an order from any peer."""
        self.version += 1
        self._deployment.accept_order(OverlayOrder(data), now)
        self._settle(now)

    @property
    def signed(self) -> SignedOverlay:
        """The overlay that the broker currently follows."""
        return self._deployment.signed

    @property
    def has_routing_state(self) -> bool:
        """True if the broker has all claims that it needs to forward anything."""
        return self._deployment.has_routing_state

    @property
    def has_left(self) -> bool:
        """True if the operator has detached the broker and its remaining work is finished."""
        return self._deployment.has_left

    def suspects(self) -> list[ReplicaId]:
        """Replicas that are proven Byzantine."""
        return self._evidence.proven_faulty()

    def fault_counts(self) -> dict[ReplicaId, dict[FaultReason, int]]:
        """All evidence against replicas, proof or not, as counts by reason."""
        return self._evidence.counts()

    @property
    def observed_count(self) -> int:
        """Number of publications forwarded to completion. Fault counts are compared with this number."""
        return self._content_forwarder.completed

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        if self.has_left:
            return
        try:
            message = self._links.receive(data, source, now)
            if message is None:
                if not self._links.needs_follow_up and self._deployment.is_settled:
                    return
            elif (key := self._links.replica_key(source)) is None:
                self._on_client_message(message, source, now)
            else:
                self._on_replica_message(message, key, now)
        except RemoteError as error:
            self.refused[type(error).__name__] += 1
        except Exception as error:
            self.faults.count_exception(error)
        self._settle(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        if self.has_left:
            return
        for part in (self._links, self._router, self._key_forwarder, self._content_forwarder):
            part.handle(now)
            self._send(now)
        self._settle(now)

    def next_timer(self) -> int | None:
        if self.has_left:
            return None
        deployed = None if self._deployment.is_settled else self._deployment.next_us()
        links, router, key_forwarder, content_forwarder = (
            self._links,
            self._router,
            self._key_forwarder,
            self._content_forwarder,
        )
        return earliest(
            deployed, links.next_us(), router.next_us(), key_forwarder.next_us(), content_forwarder.next_us()
        )

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._links.frames(now, limit)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._links.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        if self.has_left or not self._links.peer_up(peer, now):
            return
        self._links.send(peer, self._deployment.make_greeting(self._peer(peer)))
        self._settle(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._links.peer_lost(peer, now)
        self._deployment.on_peer_lost(self._peer(peer))
        self._settle(now)

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table."""
        key_forwarder = self._key_forwarder.sizes()
        return {
            **self._links.sizes(),
            **self._router.sizes(),
            **key_forwarder,
            **self._content_forwarder.sizes(),
            "keys": key_forwarder.get("passages", 0),
            "awaited": len(self._awaited_claims),
            "suspects": len(self._evidence),
        }

    @property
    def dropped(self) -> int:
        """Number of messages dropped because a queue was full."""
        return self._links.dropped

    # --- permissions

    def _on_client_message(self, message: Message, client: Address, now: int) -> None:
        match message:
            case BringClaim():
                check_bring(message, self.key)
                self._router.claim_of_client(message.claim, client, now)
            case WithdrawClaim():
                self._router.withdrawal_of_client(message, client, now)
            case FirstShare():
                self._key_forwarder.receive(message, client, now)
            case WantKey():
                self._key_forwarder.receive(message, client, now)
                self._content_forwarder.note_request(client, message.advertisement, now)
            case ForwardContent() | RequestBlocks() | ConfirmContent():
                self._content_forwarder.receive(message, client, now)
            case OverlayOrder():
                self._deployment.accept_order(message, now)
            case VersionAdopted():
                self._deployment.accept_status(message, client, now)
            case _:
                raise MalformedError("not a message of a client")

    def _on_replica_message(self, message: Message, key: bytes, now: int) -> None:
        ids = self._deployment.ids_of(key)
        if not ids:
            raise StaleError("from a replica that left this node or its neighbours")
        source, node = ids[0], ids[0].scheme.node
        match message:
            case Claim() if node == self._home:
                if self.has_routing_state or message.edge != self._home:
                    raise StaleError("this was not asked for")
                self._awaited_claims.add(key, message.id)
            case Claim():
                self._router.claim_of_node(message, node, key, now)
            case WithdrawClaim() if node != self._home:
                self._router.withdrawal_of_node(message, node, key, now)
            case NextShare() | AgreementWord() | DisputeDealing() | ShareReceived() | WantKey():
                self._key_forwarder.receive(message, source, now)
            case ForwardContent() | RequestBlocks() | ConfirmContent():
                self._content_forwarder.receive(message, source, now)
            case OverlayOrder():
                self._deployment.accept_order(message, now)
            case VersionAdopted():
                self._deployment.accept_status(message, key, now)
            case CopyRouting():
                answer = RoutingCopied(self._deployment.version)
                # A repeated request of a slow peer would otherwise send everything twice.
                if not self._links.is_unacknowledged(key, answer):
                    self._send_all_claims(key, node)
                    self._links.send_to_replica(key, answer)
            case RoutingCopied():
                self._deployment.record_state_answer(key)
            case _:
                raise MalformedError("not a message of a replica")

    def _send_all_claims(self, key: bytes, node: bytes) -> None:
        """Send all claims that a replica of this node should know from this broker."""
        for claim in self._router.claims_for(node):
            self._links.send_to_replica(key, claim)

    # --- consequences

    def _settle(self, now: int) -> None:
        for peer in self._links.take_restarted() if self._links.needs_follow_up else ():
            key = self._links.replica_key(peer)
            node = None if key is None else self._deployment.node_of(key)
            if key is not None and node is not None and node != self._home:
                self._send_all_claims(key, node)
        if not self._quiet_ended and self._links.is_first_life():
            self._quiet_ended = True
            self._key_forwarder.end_quiet_period()
        self._send(now)
        if not self._deployment.is_settled or self._deployment.outbox:
            self._deployment.handle(now, self._remaining_work())
            self._follow_deployment(now)
        if self.has_routing_state:
            self._awaited_claims.clear()
        self._links.close_stalled(now)
        if self.has_left:
            self._links.close_all()

    def _send(self, now: int) -> None:
        """Send claims first: a subscriber must know a publisher before it receives anything from that publisher."""
        while self._router.outbox or self._router.new_advertisements or self._router.ended:
            routed, self._router.outbox = self._router.outbox, []
            for hop, message in routed:
                self._send_routed(hop, message)
            news, self._router.new_advertisements = self._router.new_advertisements, []
            for advertisement in news:
                self._key_forwarder.on_advertisement(advertisement, now)
                self._content_forwarder.on_advertisement(advertisement, now)
            ended, self._router.ended = self._router.ended, {}
            if ended:
                self._content_forwarder.on_claims_ended(
                    {what if isinstance(what, bytes) else node_of_hop(what) or what for what in ended}, now
                )
        for part in (self._key_forwarder, self._content_forwarder):
            if not part.outbox:
                continue
            messages, part.outbox = part.outbox, []
            for outgoing in messages:
                self._send_outgoing(outgoing)

    def _send_routed(self, hop: Address, message: Message) -> None:
        node = node_of_hop(hop)
        if node is None:
            self._links.send(hop, message)
            return
        for key in self._deployment.linked_replicas():
            if self._deployment.node_of(key) == node:
                self._links.send_to_replica(key, message)

    def _send_outgoing(self, outgoing: Outgoing) -> None:
        to, message = outgoing
        if isinstance(to, ReplicaId):
            try:
                key = self._deployment.replica_keys.key_of(to)
            except StaleError:
                return  # The scheme has ended.
            self._links.send_to_replica(key, message)
        else:
            self._links.send(to, message)

    def _follow_deployment(self, now: int) -> None:
        """Send the deployment's messages, and link with the replicas that it names."""
        self._links.set_replicas(self._deployment.linked_replicas(), now)
        outbox, self._deployment.outbox = self._deployment.outbox, []
        for to, message in outbox:
            if isinstance(to, bytes):
                self._links.send_to_replica(to, message)
            else:
                for client in self._links.clients() if to is None else [to]:
                    self._links.send(client, message)

    def _remaining_work(self) -> RemainingWork:
        if not self._deployment.may_leave:
            has_missing, doubtful = (
                self._awaited_claims.has_missing(self._router.has_seen),
                self._router.unconfirmed_count > 0,
            )
            return RemainingWork(
                has_missing_claims=has_missing,
                has_unconfirmed_claims=doubtful,
                quiet_us=self._key_forwarder.quiet_until_us,
            )
        # Content was forwarded on arrival, and its confirmations go to the replicas that stay.
        held = self._key_forwarder.sizes().get("passages", 0)
        return RemainingWork(self._links.lagging_replicas(), held, quiet_us=self._key_forwarder.quiet_until_us)

    def _peer(self, peer: Address) -> bytes | Address:
        """The peer's name in the deployment: a replica's key, or a client's address."""
        return self._links.replica_key(peer) or peer


class BrokerRoutingView:
    """The `RoutingView` of key and content forwarding: claims by hop, and hops by the scheme to send by."""

    def __init__(self, deployment: Deployment, router: Router, links: BrokerLinks, me: bytes) -> None:
        self._deployment, self._router, self._links, self._me = deployment, router, links, me

    def own_replicas(self) -> Sequence[ReplicaId]:
        return self._deployment.ids_of(self._me)

    def publisher_of(self, advertisement: bytes) -> bytes:
        return self._router.publisher_of(advertisement)

    def source_of(self, advertisement: bytes) -> Branch:
        return self._branch(self._router.source_of(advertisement))

    def subscriber_branches(self, advertisement: bytes) -> Sequence[Branch]:
        return [self._branch(hop) for hop in self._router.subscriber_hops(advertisement)]

    def matching_branches(self, routing: Routing) -> Sequence[Branch]:
        return [self._branch(hop) for hop in self._router.route(routing)]

    def is_unacknowledged(self, replica: ReplicaId, message: Message) -> bool:
        try:
            key = self._deployment.replica_keys.key_of(replica)
        except StaleError:
            return True  # The scheme has ended: no replica can acknowledge.
        return self._links.is_unacknowledged(key, message)

    def has_all_claims(self) -> bool:
        return self._deployment.has_routing_state

    def _branch(self, hop: Address) -> Scheme | Address:
        node = node_of_hop(hop)
        return hop if node is None else self._deployment.scheme(node)
