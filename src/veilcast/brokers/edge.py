"""The edge: a client's links with all replicas of its virtual node, as the operator's orders change it.

Pure. The client calls each replica and keeps calling; what it says is queued for each by itself (`queues`), so each
hears it once and in order, whenever it comes. A replica is known by its place in the node, under the scheme that is
sent by now, and for a while under another, while the node changes (`redeploying`).

Where keys travel out of band, the client is linked with the replicas of the repository in the same way. These hear of
its advertisements only, and of a newer overlay from the client, since they are linked with nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from random import Random

from veilcast.authority.keyring import TopicKeys
from veilcast.brokers.claims import bring
from veilcast.brokers.config import ClientConfig
from veilcast.brokers.leaving import Work
from veilcast.brokers.overlay import NodeEntry, SignedOverlay, node_id
from veilcast.brokers.queues import Queues
from veilcast.brokers.redeploying import Deployment, Pace
from veilcast.brokers.renewing import Owned
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.brokers.shelf import Name, pull
from veilcast.errors import ConfigError, StaleError
from veilcast.machine import Address, Disconnect, Entropy, Event, Frame
from veilcast.parts.alarms import earliest
from veilcast.parts.calling import Callers
from veilcast.wire.brokers import ClaimKind, Order, Push, Stands, Withdraw
from veilcast.wire.messages import Message


class Edge:
    """Bounded by the overlay: the replicas of one node, in two schemes at most."""

    def __init__(
        self,
        config: ClientConfig,
        overlay: SignedOverlay,
        operator: bytes,
        name: str,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self.node = config, node_id(name)
        pace = Pace(prepare_us=config.prepare_us, linger_us=config.linger_us)
        self._deployment = Deployment(overlay, operator, self.node, None, profile=config.profile, pace=pace, now=now)
        self._queues = Queues(config.window, config.queue_max, config.queue_bytes, entropy)
        self._keys: dict[Address, bytes] = {}
        self._shelves: dict[Address, bytes] = {}
        """The replicas of the repository,"""
        self._kept: list[NodeEntry] = []
        """as it is, and as it was before: a share that was asked for then may be on its way."""
        if config.delivery == "repository" and self._deployment.overlay.repository is None:
            raise ConfigError('brokers.delivery is "repository", and the overlay has none')
        self._callers = Callers(config.connect_us, rng)
        self._events: deque[Event] = deque()
        self._follow(now)

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def scheme(self) -> Scheme:
        """By which one sends now."""
        return self._deployment.scheme(self.node)

    @property
    def shelves(self) -> Scheme:
        """Of the repository."""
        return self._repository.scheme

    @property
    def signed(self) -> SignedOverlay:
        """The overlay that it goes by."""
        return self._deployment.signed

    @property
    def roster(self) -> Roster:
        return self._deployment.roster

    @property
    def dropped(self) -> int:
        return self._queues.dropped

    def up(self) -> list[Address]:
        """The replicas that hear us now."""
        return [peer for peer in self._keys if self._queues.up(peer)]

    @property
    def replicas(self) -> int:
        return len(self._keys)

    @property
    def carries(self) -> bool:
        """Whether a majority of the replicas that one sends to hears us."""
        keys = {self._keys[peer] for peer in self.up()}
        return sum(replica.key in keys for replica in self._deployment.replicas(self.scheme)) >= self.scheme.threshold

    def enough(self, peers: Collection[Address]) -> bool:
        """Whether one of these replicas is honest."""
        keys = [self._keys[peer] for peer in peers if peer in self._keys]
        return self._deployment.enough(self.node, keys)

    def places(self, peer: Address) -> Sequence[Place]:
        """Of one replica, the one to send by first."""
        if peer in self._shelves:
            return [place for entry in self._kept if (place := entry.place(self._shelves[peer])) is not None]
        if peer not in self._keys:
            raise StaleError("not a replica of ours")
        return self._deployment.places(self._keys[peer])

    # --- out

    def send(self, index: int, message: Message) -> None:
        """To one replica, by its index in the scheme to send by."""
        self._queues.put(Address(self._deployment.replicas(self.scheme)[index - 1].address), message)

    def tell(self, peer: Address, message: Message) -> None:
        self._queues.put(peer, message)

    def shelve(self, index: int, message: Push) -> None:
        """To one replica of the repository."""
        self._queues.put(Address(self._repository.replicas[index - 1].address), message)

    def pull(self, name: Name, keys: TopicKeys) -> None:
        """Ask all of them for their shares of a key."""
        for peer, replica in self._shelves.items():
            self._queues.put(peer, pull(name, keys, replica))

    def say(self, message: Message) -> None:
        """To all replicas of the edge node."""
        for peer in self._keys:
            self._queues.put(peer, message)

    def claim(self, said: Owned | Withdraw) -> None:
        """The same with a claim of ours, or its end."""
        if isinstance(said, Withdraw):
            self.say(said)
            return
        for peer in self._callers:
            self.bring(peer, said)

    def bring(self, peer: Address, owned: Owned) -> None:
        """To one of them, with a word for it alone."""
        if peer in self._keys:
            self._queues.put(peer, bring(owned.claim, owned.holder, self._keys[peer]))
        elif peer in self._shelves and owned.claim.kind is ClaimKind.ADVERTISEMENT:
            self._queues.put(peer, bring(owned.claim, owned.holder, self._shelves[peer]))

    # --- in

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        """What a replica has to say to a member; the rest is dealt with here. Raises for what makes no sense."""
        message = self._queues.receive(data, peer, now)
        match message:
            case Order():
                self._deployment.take(message, now)
            case Stands() if peer in self._keys:
                self._deployment.hear(message, self._keys[peer], now)
            case _:
                return message
        self._follow(now)
        return None

    def anew(self) -> list[Address]:
        """Replicas that know nothing of us, or nothing any more; told once."""
        peers = list(dict.fromkeys(self._queues.anew))
        self._queues.anew.clear()
        return peers

    def peer_up(self, peer: Address) -> None:
        if peer in self._callers:
            self._callers.peer_up(peer)
            self._queues.peer_up(peer)
            shelf = peer in self._shelves
            self._queues.put(peer, self._order if shelf else self._deployment.greet(self._keys[peer]))

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._callers:
            self._callers.peer_lost(peer, now)
            self._queues.peer_lost(peer)
            if peer in self._keys:
                self._deployment.lost(self._keys[peer])

    # --- time

    def handle(self, now: int) -> None:
        self._queues.handle(now)
        self._callers.handle(now)
        self._deployment.handle(now, Work())
        self._follow(now)

    def next_us(self) -> int | None:
        return earliest(self._queues.next_us(), self._deployment.next_us(), self._callers.next_us)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._callers.next_event()

    def frames(self, now: int, limit: int) -> list[Frame]:
        return self._queues.frames(now, limit)

    def cut_off(self, now: int) -> None:
        """Leave streams that are of no use."""
        while self._queues.cut:
            peer = self._queues.cut.popleft()
            self._events.append(Disconnect(peer))
            self.peer_lost(peer, now)

    # --- inside

    @property
    def _repository(self) -> NodeEntry:
        repository = self._deployment.overlay.repository
        assert repository is not None, "no order takes it away"
        return repository

    @property
    def _order(self) -> Order:
        return Order(self._deployment.signed.encode())

    def _follow_repository(self) -> None:
        if self._kept[:1] == [self._repository]:
            return
        self._kept = [self._repository, *self._kept[:1]]
        self._shelves = {Address(replica.address): replica.key for replica in self._repository.replicas}
        for peer in self._shelves:
            self._queues.put(peer, self._order)

    def _follow(self, now: int) -> None:
        """Say what the deployment has to say, and be linked with whom it says."""
        linked = {Address(replica.address): key for key, replica in self._deployment.linked().items()}
        if self._config.delivery == "repository":
            self._follow_repository()
        every = linked | self._shelves
        for peer in [peer for peer in self._callers if peer not in every]:
            self._callers.drop(peer)
            self._queues.forget(peer)
            self._events.append(Disconnect(peer))
        for peer in every:
            self._callers.add(peer, now)
        self._keys = linked
        addresses = {key: peer for peer, key in linked.items()}
        outbox, self._deployment.outbox = self._deployment.outbox, []
        for to, message in outbox:
            if isinstance(to, bytes) and to in addresses:
                self._queues.put(addresses[to], message)
