"""A whole overlay in memory: brokers and clients, breaking streams, kills, and its own clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

import msgspec

from support import broker_keyrings
from support.broker_keyrings import EPOCH_US, OPERATOR, START, signing
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile
from veilcast.brokers.broker import Broker
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.multipath_client import MultipathClient
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, sign_overlay
from veilcast.machine import Address, Connect, Delivered, Disconnect, Frame, Record, Settled, Waiting
from veilcast.sim.rng import SeededEntropy, derive_bytes

Wire = Callable[[Frame, Address], Frame | None]
"""Rewrites a frame in transit; None loses it."""


@dataclass
class NetworkSlot:
    start: Callable[[], Any]
    machine: Any = None
    disk: dict[int, bytes] = field(default_factory=dict)
    alarm: int | None = None
    life: int = 0


class BrokerNetwork:
    """`heard` lists the deliveries: (client, subscription, body). Applications acknowledge at once."""

    def __init__(
        self,
        profile: Profile,
        links: Sequence[tuple[str, str]] = broker_keyrings.CHAIN,
        *,
        replicas: int = 3,
        latency_us: int = 5_000,
        seed: int = 1,
        broker: BrokerConfig | None = None,
        client: BrokerClientConfig | None = None,
    ) -> None:
        self.profile, self.now, self.seed, self._latency_us = profile, START, seed, latency_us
        self.rng = Random(seed)
        self.overlay: SignedOverlay = sign_overlay(broker_keyrings.overlay(links, replicas), OPERATOR)
        self.broker_config = msgspec.structs.replace(broker or BrokerConfig(), profile=profile)
        self.client_config = msgspec.structs.replace(client or BrokerClientConfig(), profile=profile)
        self.places: dict[Address, NetworkSlot] = {}
        self.streams: set[frozenset[Address]] = set()
        self.wires: dict[Address, Wire] = {}
        self.heard: list[tuple[str, int, bytes]] = []
        self.stands: list[tuple[str, int]] = []
        self.frames = 0
        self.written = bytearray()
        """All frames that brokers have sent."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._settle(lambda: self.overlay)

    # --- who is there

    def second_overlay(self, links: Sequence[tuple[str, str]], replicas: int = 3) -> SignedOverlay:
        """Add another overlay of other brokers."""
        signed = sign_overlay(broker_keyrings.overlay(links, replicas), OPERATOR)
        self._settle(lambda: signed)
        return signed

    def client(self, name: str, edge: str, number: int, role: str = "subscriber", **more: Any) -> BrokerClient:
        keyring = broker_keyrings.keyring(number, self.profile, role, **more)
        address = Address(name)
        self._add(name, lambda: self._client(address, keyring, self.overlay, edge))
        machine: BrokerClient = self.places[address].machine
        return machine

    def member(
        self, name: str, edges: Sequence[tuple[SignedOverlay, str]], number: int, role: str = "subscriber"
    ) -> MultipathClient:
        """A client of several overlays."""
        keyring = broker_keyrings.keyring(number, self.profile, role)
        address = Address(name)

        def start() -> MultipathClient:
            clients = [self._client(address, keyring, overlay, edge) for overlay, edge in edges]
            return MultipathClient(clients, self.places[address].disk, self.client_config.seen_max, self.now)

        self._add(name, start)
        machine: MultipathClient = self.places[address].machine
        return machine

    def broker(self, name: str) -> Broker:
        machine: Broker = self.places[Address(name)].machine
        return machine

    def brokers(self) -> list[Broker]:
        return [place.machine for place in self.places.values() if isinstance(place.machine, Broker)]

    def kill(self, name: str) -> None:
        address = Address(name)
        self.places[address].machine = None
        for stream in [stream for stream in self.streams if address in stream]:
            self._lose(*stream)

    def restart(self, name: str) -> None:
        place = self.places[Address(name)]
        place.life += 1
        place.machine = place.start()
        self._look(Address(name))

    def redeploy(self, overlay: BrokerOverlay, first: str, fresh: Sequence[str] = ()) -> None:
        """The operator gives an order to one broker; the new brokers start with it."""
        self.overlay = sign_overlay(overlay, OPERATOR)
        self.broker(first).accept_order(self.overlay.encode(), self.now)
        self.touch(first)
        for name in fresh:
            self._add_broker(name, lambda: self.overlay)

    def cut(self, one: str, other: str) -> None:
        self._lose(Address(one), Address(other))

    # --- time

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * 1_000_000)
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heappop(self._queue)
            act()
        self.now = until

    def touch(self, name: str) -> None:
        """Poll a machine after a call by the test."""
        self._look(Address(name))

    # --- inside

    def _settle(self, overlay: Callable[[], SignedOverlay]) -> None:
        for node in overlay().verify(OPERATOR.public).nodes:
            for replica in node.replicas:
                self._add_broker(replica.address, overlay)

    def _add_broker(self, name: str, overlay: Callable[[], SignedOverlay]) -> None:
        node, _, index = name.rpartition(".")
        self._add(name, lambda: self._broker(node, int(index), overlay()))

    def _client(self, address: Address, keyring: Keyring, overlay: SignedOverlay, edge: str) -> BrokerClient:
        place = self.places[address]
        return BrokerClient(
            self.client_config,
            keyring,
            overlay,
            OPERATOR.public,
            edge,
            address,
            Random(f"{self.seed} {address} {edge} {place.life}"),
            SeededEntropy(derive_bytes(self.seed, address, edge, str(place.life))),
            self.now,
            dict(place.disk),
        )

    def _broker(self, node: str, index: int, overlay: SignedOverlay) -> Broker:
        address = Address(f"{node}.{index}")
        life = self.places[address].life
        return Broker(
            self.broker_config,
            overlay,
            OPERATOR.public,
            address,
            broker_keyrings.signing(node, index),
            broker_keyrings.root(self.profile),
            EPOCH_US,
            Random(f"{self.seed} {address} {life}"),
            SeededEntropy(derive_bytes(self.seed, address, str(life))),
            self.now,
        )

    def _add(self, name: str, start: Callable[[], Any]) -> None:
        address = Address(name)
        self.places[address] = NetworkSlot(start)
        self.places[address].machine = start()
        self._after(0, lambda: self._look(address))

    def _after(self, wait_us: int, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + wait_us, self._count, act))

    def _look(self, address: Address) -> None:
        place = self.places[address]
        machine = place.machine
        if machine is None:
            return
        for frame in machine.frames_to_send(self.now, 1 << 20):
            self._send(frame, address)
        while (event := machine.next_event()) is not None:
            self._act(event, address, place)
        when = machine.next_timer()
        if when is not None and when != place.alarm:
            place.alarm = when
            self._after(max(0, when - self.now), lambda: self._ring(address, machine, when))

    def _ring(self, address: Address, machine: Any, when: int) -> None:
        place = self.places[address]
        if place.machine is machine and place.alarm == when:
            place.alarm = None
            machine.handle_timer(self.now)
            self._look(address)

    def _send(self, frame: Frame, source: Address) -> None:
        wire = self.wires.get(source)
        kept = frame if wire is None else wire(frame, source)
        stream = frozenset((source, frame.destination))
        if kept is None or stream not in self.streams:
            return
        self.frames += 1
        if isinstance(self.places[source].machine, Broker):
            self.written += kept.data
        target = self.places[kept.destination].machine

        def arrive() -> None:
            if stream in self.streams and self.places[kept.destination].machine is target:
                target.receive(kept.data, source, self.now)
                self._look(kept.destination)

        self._after(self._latency_us, arrive)

    def _act(self, event: Any, address: Address, place: NetworkSlot) -> None:
        match event:
            case Connect(peer):
                self._after(self._latency_us, lambda: self._connect(address, peer))
            case Disconnect(peer):
                self._after(0, lambda: self._lose(address, peer))
            case Record(record, data):
                place.disk[record] = data
                machine = place.machine
                self._after(0, lambda: self._stored(address, machine, record))
            case Settled(record):
                place.disk.pop(record, None)
            case Waiting(number, until) if until is not None:
                self.stands.append((address, number))
            case Delivered(number, note):
                self.heard.append((address, number, note.publication.body))
                place.machine.acknowledge(note.id, self.now)
            case _:
                pass

    def _stored(self, address: Address, machine: Any, record: int) -> None:
        if self.places[address].machine is machine:
            machine.stored(record, self.now)
            self._look(address)

    def _connect(self, one: Address, other: Address) -> None:
        machines = [self.places[end].machine for end in (one, other) if end in self.places]
        stream = frozenset((one, other))
        if len(machines) < 2 or None in machines:
            if self.places[one].machine is not None:
                self.places[one].machine.peer_lost(other, self.now)
                self._look(one)
            return
        if stream in self.streams:
            return
        self.streams.add(stream)
        for end, peer in ((one, other), (other, one)):
            self.places[end].machine.peer_up(peer, self.now)
            self._look(end)

    def _lose(self, one: Address, other: Address) -> None:
        stream = frozenset((one, other))
        if stream not in self.streams:
            return
        self.streams.discard(stream)
        for end, peer in ((one, other), (other, one)):
            if self.places[end].machine is not None:
                self.places[end].machine.peer_lost(peer, self.now)
                self._look(end)


def with_replicas(overlay: BrokerOverlay, node: str, indexes: list[int]) -> BrokerOverlay:
    """The overlay with these replicas in that node."""
    replicas = tuple(Replica(signing(node, index).public, f"{node}.{index}", f"{node}.{index}") for index in indexes)
    nodes = tuple(NodeEntry(node, each.version + 1, replicas) if each.name == node else each for each in overlay.nodes)
    return msgspec.structs.replace(overlay, version=overlay.version + 1, nodes=nodes)
