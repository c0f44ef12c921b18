"""A replica of the repository: stores key shares for subscribers that ask, outside the overlay (P4, adaptations).

It consists of links (`broker_links`), which all lead to clients here, and a share store (`share_store`). Replicas of
the repository do not know one another and forward nothing. A replica stores nothing on disk. After a restart clients
send their advertisements again, and keys that it lacks are available from the others, which are a majority.

The overlay that the operator signs lists the replicas. Clients bring newer versions.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from veilcast.brokers.broker_links import BrokerLinks
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.operations.share_store import ShareStore
from veilcast.brokers.overlay import BrokerOverlay, SignedOverlay, add_overlay_keys, overlay_replica_keys
from veilcast.core.timers import earliest
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, MalformedError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.machine import Address, Entropy, Event, Frame, Listen
from veilcast.wire.base import Message
from veilcast.wire.brokers import BringClaim, OverlayOrder, PullShare, PushShare, WithdrawClaim


class Repository:
    """A `Machine`, with the notices of `Peers`, built like a broker. It emits `Listen("broker")`.

    Only the settings on clients, claims and keys apply. `refused` counts rejected messages.
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
        self.address, self.signing, self.key = address, signing, signing.public
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.version = 0
        self.observed_count = 0
        """Always 0: no publication passes through; a broker counts them here."""
        self.signed, self._operator, self._config = overlay, operator, config
        self._overlay: BrokerOverlay = overlay.verify(operator)
        self._overlay.check(config.profile)
        if self._own_id() is None:
            raise ConfigError("the overlay's repository has no replica with this key")
        self._replica_keys = overlay_replica_keys([self._overlay])
        self._store = ShareStore(config, self.key, root, epoch_us, self._replica_keys)
        self._links = BrokerLinks(config, self.key, lambda client: self._store.claims_of(client) > 0, rng, entropy)
        self._events: deque[Event] = deque([Listen("broker")])

    @property
    def has_routing_state(self) -> bool:
        """Always True: it needs nothing from the others."""
        return True

    def fault_counts(self) -> dict[ReplicaId, dict[FaultReason, int]]:
        """Always empty: what it accepts is signed, and the rest is refused."""
        return {}

    @property
    def has_left(self) -> bool:
        """True if the operator has removed it. It still answers subscribers from its store."""
        return self._own_id() is None

    def accept_order(self, data: bytes, now: int) -> None:
        """Accept a newer overlay, from the operator or through a client. Raises for an invalid one."""
        signed = SignedOverlay.decode(data)
        if signed.body == self.signed.body:
            return
        newer = signed.verify(self._operator)
        self._overlay.check_successor(newer)
        try:
            newer.check(self._config.profile)
        except ConfigError as error:
            raise MalformedError("an order for an overlay that could not be") from error
        self.signed, self._overlay = signed, newer
        add_overlay_keys(self._replica_keys, newer)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        try:
            message = self._links.receive(data, source, now)
            if message is not None:
                self._on_message(message, source, now)
        except RemoteError as error:
            self.refused[type(error).__name__] += 1
        except Exception as error:
            self.faults.count_exception(error)
        self._answer(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        self._links.handle(now)
        self._store.handle(now)
        self._answer(now)

    def next_timer(self) -> int | None:
        return earliest(self._links.next_us(), self._store.next_us())

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self._links.frames(now, limit)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._links.next_event()

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        self._links.peer_up(peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._links.peer_lost(peer, now)
        self._store.on_client_lost(peer)

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table."""
        return {**self._links.sizes(), **self._store.sizes()}

    # --- internals

    def _on_message(self, message: Message, client: Address, now: int) -> None:
        match message:
            case BringClaim():
                self._store.add_advertisement(message, client, now)
            case PushShare():
                own_id = self._own_id()
                if own_id is None:
                    raise StaleError("this replica is not in the repository any more")
                self._store.store_share(message, own_id)
            case PullShare():
                self._store.answer_pull(message, client)
            case OverlayOrder():
                self.accept_order(message.order, now)
            case WithdrawClaim():
                pass  # Content sealed under the claim may still be read.
            case _:
                raise MalformedError("not for a repository")

    def _answer(self, now: int) -> None:
        outbox, self._store.outbox = self._store.outbox, []
        for client, push in outbox:
            self._links.send(client, push)
        self._links.take_restarted()
        self._links.close_stalled(now)

    def _own_id(self) -> ReplicaId | None:
        return None if self._overlay.repository is None else self._overlay.repository.replica_id(self.key)
