"""A whole overlay in a simulated world: three virtual nodes in a line, three brokers each, and clients at any of
them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.brokers.broker import Broker
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, sign_overlay
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.machine import Address, Delivered, Event, Publication, Waiting
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.rng import derive_bytes
from veilcast.sim.world import World
from veilcast.topics import Conjunction, Integers, Label, Reals, Schema, Strings

TOPIC = "news/eu"
OTHER = "news/us"
SCHEMA = Schema((Integers("level", 0, 15, 4), Reals("lat", 0, 8, 4), Reals("lon", 0, 8, 4), Strings("kind")))
EPOCH_US = 60_000_000
OPERATOR = SigningKey(Secret(b"o" * 32))
NODES = ("a", "b", "c")
CLIENT = BrokerClientConfig(
    spread_us=500_000, ahead_us=10_000_000, connect_us=500_000, again_us=3_000_000, want_us=1_000_000
)
BROKER = BrokerConfig(connect_us=500_000, bound_us=100_000, missing_us=200_000, copy_us=500_000)


def signing(name: str) -> SigningKey:
    return SigningKey(Secret(derive_bytes(0, "broker", name)))


@cache
def overlay(size: int = 3) -> SignedOverlay:
    entries = tuple(
        NodeEntry(node, 0, tuple(Replica(signing(name).public, name, name) for name in names_of(node, size)))
        for node in NODES
    )
    return sign_overlay(BrokerOverlay(0, entries, (("a", "b"), ("b", "c"))), OPERATOR)


def names_of(node: str, size: int = 3) -> list[str]:
    return [f"{node}{index}" for index in range(1, size + 1)]


class SimulatedOverlay:
    """`delivered` lists the deliveries: (client, subscription, body), in order; applications acknowledge at once."""

    def __init__(
        self,
        profile: Profile = "hardened",
        *,
        clients: dict[str, str],
        client: BrokerClientConfig = CLIENT,
        broker: BrokerConfig = BROKER,
        seed: int = 1,
    ) -> None:
        """`clients` maps each name to its node. All may publish."""
        self.profile: Profile = profile
        self._client = msgspec.structs.replace(client, profile=profile)
        self._broker = msgspec.structs.replace(broker, profile=profile)
        self._length_us = EPOCH_US if profile == "hardened" else HOUR_US
        self._records = tuple(TopicRecord(topic, SCHEMA, profile=profile) for topic in (TOPIC, OTHER))
        self._root = make_keyring(self._records, self._length_us, (), 99).root
        self.delivered: list[tuple[str, int, bytes]] = []
        self.events: list[tuple[str, Event]] = []
        self.world = World(seed=seed, links=LinkDelays((5_000, 20_000)), epoch_us=EPOCH_US, on_event=self._on_event)
        for node in NODES:
            for name in names_of(node):
                self.world.add(Address(name), self._brokers(name))
        self.wants: dict[str, list[Conjunction]] = {name: [] for name in clients}
        for number, (name, node) in enumerate(clients.items()):
            self.world.add(Address(name), self._clients(number, name, node))
        self.run(3)

    def run(self, seconds: float) -> None:
        self.world.run(round(seconds * 1_000_000))

    def run_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Run until this is true; fails if it takes longer."""
        for _ in range(round(seconds * 4)):
            if ready():
                return
            self.run(0.25)
        assert ready(), f"not so after {seconds} s"

    def do(self, name: str, act: Callable[[Any, int], object]) -> Any:
        """Call the machine as its application, now, and return the result."""
        results: list[Any] = []
        self.world.call(Address(name), lambda machine, now: results.append(act(machine, now)))
        self.run(0)
        return results[0] if results else None

    def subscribe(self, name: str, interest: Conjunction) -> int:
        self.wants[name].append(interest)
        return int(self.do(name, lambda client, now: client.subscribe(interest, now)))

    def publish(self, name: str, body: bytes, *pairs: tuple[str, Any], topics: tuple[str, ...] = (TOPIC,)) -> int:
        publication = Publication((*(Label(topic).pair for topic in topics), *pairs), body)
        return int(self.do(name, lambda client, now: client.publish(publication, now)))

    def machine(self, name: str) -> Any:
        return self.world.machine(Address(name))

    def delivered_to(self, name: str) -> list[bytes]:
        return [body for client, _, body in self.delivered if client == name]

    def stand(self) -> None:
        """Run until all subscriptions are in force."""
        wanted = sum(map(len, self.wants.values()))
        self.run_until(lambda: self._standing() >= wanted, 10)

    def pending(self, name: str) -> int:
        """Unconfirmed publications of a client."""
        return int(self.machine(name).sizes()["pending"])

    def _standing(self) -> int:
        return sum(isinstance(event, Waiting) and event.until_us is not None for _, event in self.events)

    def _on_event(self, address: Address, event: Event, time: int) -> None:
        self.events.append((address, event))
        if isinstance(event, Delivered):
            self.delivered.append((address, event.number, event.note.publication.body))
            note = event.note.id
            self.world.call(address, lambda machine, now: machine.acknowledge(note, now))

    def _brokers(self, name: str) -> Callable[[Birth], Broker]:
        def start(birth: Birth) -> Broker:
            return Broker(
                self._broker,
                overlay(),
                OPERATOR.public,
                Address(name),
                signing(name),
                self._root,
                self._length_us,
                birth.rng,
                birth.entropy,
                birth.now,
            )

        return start

    def _clients(self, number: int, name: str, node: str) -> Callable[[Birth], BrokerClient]:
        wanted = ((TOPIC, "publisher"), (OTHER, "publisher"))
        keyring = make_keyring(self._records, self._length_us, wanted, number)

        def start(birth: Birth) -> BrokerClient:
            client = BrokerClient(
                self._client,
                keyring,
                overlay(),
                OPERATOR.public,
                node,
                Address(name),
                birth.rng,
                birth.entropy,
                birth.now,
                birth.stored,
            )
            for interest in self.wants[name]:
                client.subscribe(interest, birth.now)
            return client

        return start
