"""A broker's streams to nearby replicas and to clients, and the identity of each peer.

One of two brokers connects to the other (`overlay.is_caller`). So a replica has one name here: its address if this
broker connects to it, or its caller name if it connects to this broker. Every other peer is a client. Messages go
through `peer_sessions`. A client that is disconnected and has no claims is forgotten after a while, and the number of
clients is bounded. A client that exceeds its rate is disconnected. Its last message was not accepted, so an honest
client loses nothing: it sends the message again on its next stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import Replica, is_caller
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.core.connector import Connectors
from veilcast.core.rate_limit import TokenBucket
from veilcast.core.timers import Timers, earliest
from veilcast.errors import ExcessError
from veilcast.machine import Address, Disconnect, Entropy, Event, Frame
from veilcast.wire.base import Message


class BrokerLinks:
    """Bounded: the nearby replicas of the overlay, and `clients_max` clients.

    `is_needed` tells whether a client has claims.
    """

    def __init__(
        self, config: BrokerConfig, own_key: bytes, is_needed: Callable[[Address], bool], rng: Random, entropy: Entropy
    ) -> None:
        self._config, self._own_key, self._is_needed = config, own_key, is_needed
        # A new replica gets all claims at once, advertisements and subscriptions.
        all_claims = config.queue_max + 2 * config.claims_max
        self._queues = PeerQueues(config.window, config.queue_max, config.queue_bytes, entropy, claims_max=all_claims)
        self._linked: Mapping[bytes, Replica] = {}
        self._names: dict[bytes, Address] = {}
        self._keys: dict[Address, bytes] = {}
        self._callers = Connectors(config.connect_us, rng)
        self._clients: dict[Address, TokenBucket] = {}
        self._disconnected: Timers[Address] = Timers()
        self._events: deque[Event] = deque()

    # --- peers

    def replica_key(self, peer: Address) -> bytes | None:
        """The key of the replica; None for a client."""
        return self._keys.get(peer)

    def clients(self) -> list[Address]:
        return list(self._clients)

    def is_first_life(self) -> bool:
        """True if all nearby replicas have greeted this broker and none knew an earlier run of it."""
        return all(map(self._queues.has_never_met, self._keys))

    def lagging_replicas(self) -> list[bytes]:
        """The replicas with unacknowledged messages."""
        return [key for peer, key in self._keys.items() if self._queues.unacknowledged_count(peer)]

    def take_restarted(self) -> list[Address]:
        """Peers that lost their state about this broker. Each is reported once."""
        peers = list(dict.fromkeys(self._queues.restarted))
        self._queues.restarted.clear()
        return peers

    @property
    def needs_follow_up(self) -> bool:
        """True if there is work to do although no message reached the machine."""
        return bool(self._queues.restarted or self._queues.stalled)

    @property
    def dropped(self) -> int:
        return self._queues.dropped

    def sizes(self) -> dict[str, int]:
        queued = self._queues.queue_lengths()
        return {"clients": len(self._clients), "queued": sum(queued), "queued each": max(queued, default=0)}

    def set_replicas(self, linked: Mapping[bytes, Replica], now: int) -> None:
        """Link with exactly these replicas from now on. Passing the same mapping object again is a no-op."""
        if linked is self._linked:
            return
        self._linked = linked
        names = {
            key: Address(replica.address if is_caller(self._own_key, key) else replica.caller)
            for key, replica in linked.items()
        }
        for key, peer in self._names.items():
            if names.get(key) != peer:
                self._callers.drop(peer)
                self._queues.forget(peer)
                self._events.append(Disconnect(peer))
        for key, peer in names.items():
            self._queues.expect(peer)
            self._clients.pop(peer, None)
            self._disconnected.cancel(peer)
            if is_caller(self._own_key, key):
                self._callers.add(peer, now)
        self._names, self._keys = names, {peer: key for key, peer in names.items()}

    # --- streams

    def peer_up(self, peer: Address, now: int) -> bool:
        """True if the peer is accepted."""
        if peer in self._callers:
            self._callers.peer_up(peer)
        elif peer not in self._keys and not self._accept(peer):
            self._events.append(Disconnect(peer))
            return False
        self._disconnected.cancel(peer)
        self._queues.peer_up(peer)
        return True

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._callers:
            self._callers.peer_lost(peer, now)
        elif peer in self._clients:
            self._disconnected.set(peer, now + self._config.client_us)
        self._queues.peer_lost(peer)

    def close_all(self) -> None:
        """Close all streams permanently."""
        self._events += [Disconnect(peer) for peer in (*self._keys, *self._clients)]
        for peer in (*self._keys, *self._clients):
            self._callers.drop(peer)
            self._queues.forget(peer)
        self._keys, self._names, self._clients = {}, {}, {}

    # --- messages

    def send(self, peer: Address, message: Message) -> None:
        self._queues.put(peer, message)

    def send_to_replica(self, key: bytes, message: Message) -> None:
        """Send to a replica; a no-op if the replica is not nearby any more."""
        if key in self._names:
            self._queues.put(self._names[key], message)

    def is_unacknowledged(self, key: bytes, message: Message) -> bool:
        """True if the replica has not acknowledged this message, which was sent to it."""
        return key not in self._names or self._queues.is_unacknowledged(self._names[key], message)

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        bucket = self._clients.get(peer)
        if bucket is not None and not bucket.take(now):
            self._cut(peer, now)
            raise ExcessError("more than a client may say")
        return self._queues.receive(data, peer, now)

    def frames(self, now: int, limit: int) -> list[Frame]:
        return self._queues.frames(now, limit)

    # --- time

    def handle(self, now: int) -> None:
        self._queues.handle(now)
        self._callers.handle(now)
        for peer in self._disconnected.pop_due(now):
            if self._is_needed(peer):
                self._disconnected.set(peer, now + self._config.client_us)
            else:
                self._forget(peer)

    def next_us(self) -> int | None:
        return earliest(self._queues.next_us(), self._disconnected.next_us(), self._callers.next_us)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else self._callers.next_event()

    def close_stalled(self, now: int) -> None:
        """Close streams that make no progress."""
        while self._queues.stalled:
            self._cut(self._queues.stalled.popleft(), now)

    # --- internals

    def _accept(self, peer: Address) -> bool:
        if peer in self._clients:
            return True
        if len(self._clients) >= self._config.clients_max:
            idle = next(
                (other for other in self._clients if other in self._disconnected and not self._is_needed(other)), None
            )
            if idle is None:
                return False
            self._forget(idle)
        self._clients[peer] = TokenBucket(self._config.messages_every_us, self._config.messages_burst)
        return True

    def _forget(self, client: Address) -> None:
        del self._clients[client]
        self._disconnected.cancel(client)
        self._queues.forget(client)

    def _cut(self, peer: Address, now: int) -> None:
        self._events.append(Disconnect(peer))
        self.peer_lost(peer, now)
