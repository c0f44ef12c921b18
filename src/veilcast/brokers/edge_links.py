"""A client's links with all replicas of its edge node, as the operator's orders change the node.

The client connects to each replica and reconnects after a loss. Messages are queued for each replica separately
(`peer_sessions`), so each replica receives them once and in order, whenever it connects. A replica is identified by its
index in the node under the current scheme and, while the node changes, under another one as well
(`operations.deployment`).

Where keys travel out of band, the client links with the replicas of the repository in the same way. These receive only
its advertisements, and newer overlays: the client is their only source of orders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from random import Random

from veilcast.authority.keyring import TopicKeys
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.operations.deployment import Deployment, RedeployTimes
from veilcast.brokers.operations.detachment import RemainingWork
from veilcast.brokers.operations.share_store import KeyName, make_pull
from veilcast.brokers.overlay import NodeEntry, SignedOverlay, node_id
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.brokers.routing.claims import make_bring
from veilcast.brokers.routing.renewal import OwnedClaim
from veilcast.core.connector import Connectors
from veilcast.core.timers import earliest
from veilcast.errors import ConfigError, StaleError
from veilcast.machine import Address, Disconnect, Entropy, Event, Frame
from veilcast.wire.base import Message
from veilcast.wire.brokers import ClaimKind, OverlayOrder, PushShare, VersionAdopted, WithdrawClaim


class EdgeLinks:
    """Bounded by the overlay: the replicas of one node, in at most two schemes."""

    def __init__(
        self,
        config: BrokerClientConfig,
        overlay: SignedOverlay,
        operator: bytes,
        name: str,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self.node = config, node_id(name)
        pace = RedeployTimes(prepare_us=config.prepare_us, linger_us=config.linger_us)
        self._deployment = Deployment(overlay, operator, self.node, None, profile=config.profile, pace=pace, now=now)
        self._queues = PeerQueues(config.window, config.queue_max, config.queue_bytes, entropy)
        self._keys: dict[Address, bytes] = {}
        self._repository_keys: dict[Address, bytes] = {}
        """The replicas of the repository."""
        self._repository_entries: list[NodeEntry] = []
        """The repository's current and previous entry: a share requested from the previous one may still be in
        transit."""
        if config.delivery == "repository" and self._deployment.overlay.repository is None:
            raise ConfigError('brokers.delivery is "repository", and the overlay has none')
        self._callers = Connectors(config.connect_us, rng)
        self._events: deque[Event] = deque()
        self._follow(now)

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def scheme(self) -> Scheme:
        """The scheme to send by now."""
        return self._deployment.scheme(self.node)

    @property
    def repository_scheme(self) -> Scheme:
        return self._repository.scheme

    @property
    def signed(self) -> SignedOverlay:
        """The overlay that the client follows."""
        return self._deployment.signed

    @property
    def replica_keys(self) -> ReplicaKeys:
        return self._deployment.replica_keys

    @property
    def dropped(self) -> int:
        return self._queues.dropped

    def connected_replicas(self) -> list[Address]:
        """The replicas that have greeted this client on an open stream."""
        return [peer for peer in self._keys if self._queues.is_greeted(peer)]

    @property
    def replica_count(self) -> int:
        return len(self._keys)

    @property
    def has_majority(self) -> bool:
        """True if a majority of the current scheme's replicas is connected."""
        keys = {self._keys[peer] for peer in self.connected_replicas()}
        return sum(replica.key in keys for replica in self._deployment.replicas(self.scheme)) >= self.scheme.threshold

    def includes_honest(self, peers: Collection[Address]) -> bool:
        """True if at least one of these replicas must be honest."""
        keys = [self._keys[peer] for peer in peers if peer in self._keys]
        return self._deployment.includes_honest(self.node, keys)

    def ids_of(self, peer: Address) -> Sequence[ReplicaId]:
        """The replica's ids, the one under the current scheme first."""
        if peer in self._repository_keys:
            return [
                replica
                for entry in self._repository_entries
                if (replica := entry.replica_id(self._repository_keys[peer])) is not None
            ]
        if peer not in self._keys:
            raise StaleError("not a replica of the edge node")
        return self._deployment.ids_of(self._keys[peer])

    # --- output

    def send_to_index(self, index: int, message: Message) -> None:
        """Send to one replica, by its index in the current scheme."""
        self._queues.put(Address(self._deployment.replicas(self.scheme)[index - 1].address), message)

    def send_to_peer(self, peer: Address, message: Message) -> None:
        self._queues.put(peer, message)

    def send_to_repository(self, index: int, message: PushShare) -> None:
        """Send to one replica of the repository."""
        self._queues.put(Address(self._repository.replicas[index - 1].address), message)

    def pull_key(self, name: KeyName, keys: TopicKeys) -> None:
        """Ask all replicas of the repository for their shares of a key."""
        for peer, replica in self._repository_keys.items():
            self._queues.put(peer, make_pull(name, keys, replica))

    def send_to_all(self, message: Message) -> None:
        """Send to all replicas of the edge node."""
        for peer in self._keys:
            self._queues.put(peer, message)

    def send_claim(self, claim: OwnedClaim | WithdrawClaim) -> None:
        """Send an own claim, or its withdrawal, to all replicas."""
        if isinstance(claim, WithdrawClaim):
            self.send_to_all(claim)
            return
        for peer in self._callers:
            self.send_claim_to(peer, claim)

    def send_claim_to(self, peer: Address, owned: OwnedClaim) -> None:
        """Send a claim to one replica, with a signature for that replica alone."""
        if peer in self._keys:
            self._queues.put(peer, make_bring(owned.claim, owned.holder, self._keys[peer]))
        elif peer in self._repository_keys and owned.claim.kind is ClaimKind.ADVERTISEMENT:
            self._queues.put(peer, make_bring(owned.claim, owned.holder, self._repository_keys[peer]))

    # --- input

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        """Return messages for the member; handle the others here. Raises for invalid messages."""
        message = self._queues.receive(data, peer, now)
        match message:
            case OverlayOrder():
                self._deployment.accept_order(message, now)
            case VersionAdopted() if peer in self._keys:
                self._deployment.accept_status(message, self._keys[peer], now)
            case _:
                return message
        self._follow(now)
        return None

    def take_restarted(self) -> list[Address]:
        """Replicas without state about this client. Each is reported once."""
        peers = list(dict.fromkeys(self._queues.restarted))
        self._queues.restarted.clear()
        return peers

    def peer_up(self, peer: Address) -> None:
        if peer in self._callers:
            self._callers.peer_up(peer)
            self._queues.peer_up(peer)
            is_repository = peer in self._repository_keys
            self._queues.put(peer, self._order if is_repository else self._deployment.make_greeting(self._keys[peer]))

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._callers:
            self._callers.peer_lost(peer, now)
            self._queues.peer_lost(peer)
            if peer in self._keys:
                self._deployment.on_peer_lost(self._keys[peer])

    # --- time

    def handle(self, now: int) -> None:
        self._queues.handle(now)
        self._callers.handle(now)
        self._deployment.handle(now, RemainingWork())
        self._follow(now)

    def next_us(self) -> int | None:
        return earliest(self._queues.next_us(), self._deployment.next_us(), self._callers.next_us)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._callers.next_event()

    def frames(self, now: int, limit: int) -> list[Frame]:
        return self._queues.frames(now, limit)

    def close_stalled(self, now: int) -> None:
        """Close streams that make no progress."""
        while self._queues.stalled:
            peer = self._queues.stalled.popleft()
            self._events.append(Disconnect(peer))
            self.peer_lost(peer, now)

    # --- internals

    @property
    def _repository(self) -> NodeEntry:
        repository = self._deployment.overlay.repository
        assert repository is not None, "no order takes it away"
        return repository

    @property
    def _order(self) -> OverlayOrder:
        return OverlayOrder(self._deployment.signed.encode())

    def _follow_repository(self) -> None:
        if self._repository_entries[:1] == [self._repository]:
            return
        self._repository_entries = [self._repository, *self._repository_entries[:1]]
        self._repository_keys = {Address(replica.address): replica.key for replica in self._repository.replicas}
        for peer in self._repository_keys:
            self._queues.put(peer, self._order)

    def _follow(self, now: int) -> None:
        """Send the deployment's messages, and link with the replicas that it names."""
        linked = {Address(replica.address): key for key, replica in self._deployment.linked_replicas().items()}
        if self._config.delivery == "repository":
            self._follow_repository()
        peers = linked | self._repository_keys
        for peer in [peer for peer in self._callers if peer not in peers]:
            self._callers.drop(peer)
            self._queues.forget(peer)
            self._events.append(Disconnect(peer))
        for peer in peers:
            self._callers.add(peer, now)
        self._keys = linked
        addresses = {key: peer for peer, key in linked.items()}
        outbox, self._deployment.outbox = self._deployment.outbox, []
        for to, message in outbox:
            if isinstance(to, bytes) and to in addresses:
                self._queues.put(addresses[to], message)
