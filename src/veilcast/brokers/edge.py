"""The edge: a client's links with all replicas of its virtual node, as the operator's orders change it.

Pure. The client calls each replica and keeps calling; what it says is queued for each by itself (`queues`), so each
hears it once and in order, whenever it comes. A replica is known by its place in the node, under the scheme that is
sent by now, and for a while under another, while the node changes (`redeploying`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from random import Random

from veilcast.brokers.claims import bring
from veilcast.brokers.config import ClientConfig
from veilcast.brokers.leaving import Work
from veilcast.brokers.overlay import SignedOverlay, node_id
from veilcast.brokers.queues import Queues
from veilcast.brokers.redeploying import Deployment, Pace
from veilcast.brokers.renewing import Owned
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.errors import StaleError
from veilcast.machine import Address, Disconnect, Entropy, Event, Frame
from veilcast.parts.alarms import earliest
from veilcast.parts.calling import Caller
from veilcast.wire.brokers import Order, Stands, Withdraw
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
        self._config, self._rng, self.node = config, rng, node_id(name)
        pace = Pace(prepare_us=config.prepare_us, linger_us=config.linger_us)
        self._deployment = Deployment(overlay, operator, self.node, None, profile=config.profile, pace=pace, now=now)
        self._queues = Queues(config.window, config.queue_max, config.queue_bytes, entropy)
        self._keys: dict[Address, bytes] = {}
        self._callers: dict[Address, Caller] = {}
        self._events: deque[Event] = deque()
        self._follow(now)

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def scheme(self) -> Scheme:
        """By which one sends now."""
        return self._deployment.scheme(self.node)

    @property
    def roster(self) -> Roster:
        return self._deployment.roster

    @property
    def dropped(self) -> int:
        return self._queues.dropped

    def up(self) -> list[Address]:
        """The replicas that hear us now."""
        return [peer for peer in self._callers if self._queues.up(peer)]

    @property
    def replicas(self) -> int:
        return len(self._callers)

    @property
    def carries(self) -> bool:
        """Whether a majority of the replicas that one sends to hears us."""
        keys = {self._keys[peer] for peer in self.up()}
        return sum(replica.key in keys for replica in self._deployment.replicas(self.scheme)) >= self.scheme.threshold

    def enough(self, peers: Collection[Address]) -> bool:
        """Whether one of these replicas is honest."""
        keys = [self._keys[peer] for peer in peers if peer in self._keys]
        return self._deployment.enough(self.node, keys)

    def places(self, peer: Address) -> list[Place]:
        """Of one replica, the one to send by first."""
        if peer not in self._keys:
            raise StaleError("not a replica of ours")
        return self._deployment.places(self._keys[peer])

    # --- out

    def send(self, index: int, message: Message) -> None:
        """To one replica, by its index in the scheme to send by."""
        self._queues.put(Address(self._deployment.replicas(self.scheme)[index - 1].address), message)

    def tell(self, peer: Address, message: Message) -> None:
        self._queues.put(peer, message)

    def say(self, message: Message) -> None:
        """To all of them."""
        for peer in self._callers:
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
        if peer in self._queues:
            self._queues.put(peer, bring(owned.claim, owned.holder, self._keys[peer]))

    # --- in

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        """What a replica has to say to a member; the rest is dealt with here. Raises for what makes no sense."""
        message = self._queues.receive(data, peer, now)
        match message:
            case Order():
                self._deployment.take(message, now)
            case Stands():
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
            self._callers[peer].peer_up()
            self._queues.peer_up(peer)
            self._queues.put(peer, self._deployment.greet(self._keys[peer]))

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._callers:
            self._callers[peer].peer_lost(now)
            self._queues.peer_lost(peer)
            self._deployment.lost(self._keys[peer])

    # --- time

    def handle(self, now: int) -> None:
        self._queues.handle(now)
        for caller in self._callers.values():
            caller.handle(now)
        self._deployment.handle(now, Work())
        self._follow(now)

    def next_us(self) -> int | None:
        calls = (caller.next_us for caller in self._callers.values())
        return earliest(self._queues.next_us(), self._deployment.next_us(), *calls)

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        for caller in self._callers.values():
            if (event := caller.next_event()) is not None:
                return event
        return None

    def frames(self, limit: int) -> list[Frame]:
        return self._queues.frames(limit)

    # --- inside

    def _follow(self, now: int) -> None:
        """Say what the deployment has to say, be linked with whom it says, and leave streams that are of no use."""
        linked = {Address(replica.address): key for key, replica in self._deployment.linked().items()}
        for peer in [peer for peer in self._callers if peer not in linked]:
            del self._callers[peer]
            self._queues.forget(peer)
            self._events.append(Disconnect(peer))
        for peer in linked:
            if peer not in self._callers:
                self._callers[peer] = Caller(peer, self._config.connect_us, self._rng, now)
        self._keys = linked
        addresses = {key: peer for peer, key in linked.items()}
        outbox, self._deployment.outbox = self._deployment.outbox, []
        for to, message in outbox:
            if isinstance(to, bytes) and to in addresses:
                self._queues.put(addresses[to], message)
        while self._queues.cut:
            peer = self._queues.cut.popleft()
            self._events.append(Disconnect(peer))
            self.peer_lost(peer, now)
