"""A small relay in a simulated world: a server, two proxies or more, and clients that tests control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.machine import Address, Delivered, Event, Publication
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.recorder import RowSink
from veilcast.sim.relay.population import SERVER, proxy_mask, server_keys
from veilcast.sim.world import World
from veilcast.topics import Conjunction, Integers, Label, Schema, Strings

TOPIC = "relay"
SCHEMA = Schema((Integers("level", 0, 15, 4), Integers("size", 0, 7, 2), Strings("kind")))
"""`size` has coarse cells: two values share one."""
CLIENT_CONFIG = RelayClientConfig(spread_us=0, retry_us=1_000_000, connect_us=500_000, resume_us=5_000_000)
PROXY_CONFIG = RelayProxyConfig(batch_us=0, connect_us=500_000)
SERVER_CONFIG = RelayServerConfig(leases_max=1_000, columns_max=4_000)
EPOCH_US = 60_000_000


class RelayNetwork:
    """`heard` lists deliveries: (client, subscription, body), in order. Owners acknowledge while `prompt`."""

    def __init__(
        self,
        profile: Profile = "hardened",
        *,
        clients: int = 2,
        proxies: int = 2,
        client: RelayClientConfig = CLIENT_CONFIG,
        proxy: RelayProxyConfig = PROXY_CONFIG,
        server: RelayServerConfig = SERVER_CONFIG,
        disk_us: int = 1_000,
        recorder: RowSink | None = None,
    ) -> None:
        self.profile: Profile = profile
        self._client, self._proxy, self._server = client, proxy, server
        self.prompt = True
        self.heard: list[tuple[str, int, bytes]] = []
        self.events: list[tuple[str, Event]] = []
        self.world = World(
            seed=1,
            links=LinkDelays((5_000, 20_000)),
            recorder=recorder,
            epoch_us=EPOCH_US,
            disk_us=disk_us,
            on_event=self._on_event,
        )
        self.world.add(SERVER, self._start_server)
        self.proxies = [Address(f"p{number}") for number in range(proxies)]
        for name in self.proxies:
            self.world.add(name, self._start_proxy)
        self.names = [Address(f"c{number}") for number in range(clients)]
        self.wants: dict[Address, list[Conjunction]] = {name: [] for name in self.names}
        for number, name in enumerate(self.names):
            self.world.add(name, self._starter(number))
        self.run(2)

    def run(self, seconds: float) -> None:
        self.world.run(round(seconds * 1_000_000))

    def do(self, name: str, act: Callable[[Any, int], object]) -> Any:
        """Let an owner call its machine now, and return the result."""
        results: list[Any] = []
        self.world.call(Address(name), lambda machine, now: results.append(act(machine, now)))
        self.run(0)
        return results[0] if results else None

    def subscribe(self, name: str, interest: Conjunction) -> int:
        self.wants[Address(name)].append(interest)
        return int(self.do(name, lambda client, now: client.subscribe(interest, now)))

    def unsubscribe(self, name: str, number: int) -> None:
        self.do(name, lambda client, now: client.unsubscribe(number, now))

    def publish(self, name: str, body: bytes, **pairs: Any) -> int:
        publication = Publication((Label(TOPIC).pair, *pairs.items()), body)
        return int(self.do(name, lambda client, now: client.publish(publication, now)))

    def machine(self, name: str) -> Any:
        return self.world.machine(Address(name))

    def heard_by(self, name: str) -> list[bytes]:
        return [body for client, _, body in self.heard if client == name]

    def _on_event(self, address: Address, event: Event, time: int) -> None:
        self.events.append((address, event))
        if isinstance(event, Delivered):
            self.heard.append((address, event.number, event.note.publication.body))
            if self.prompt:
                note = event.note.id
                self.world.call(address, lambda machine, now: machine.acknowledge(note, now))

    def _start_server(self, birth: Birth) -> RelayServer:
        config = msgspec.structs.replace(self._server, profile=self.profile)
        return RelayServer(config, server_keys(), birth.rng, birth.entropy, birth.now, birth.stored)

    def _start_proxy(self, birth: Birth) -> RelayProxy:
        config = msgspec.structs.replace(self._proxy, profile=self.profile)
        mask = proxy_mask() if self.profile == "hardened" else None
        public = server_keys().public()
        return RelayProxy(config, public, [SERVER], mask, birth.rng, birth.entropy, birth.now, birth.stored)

    def _starter(self, number: int) -> Callable[[Birth], RelayClient]:
        config = msgspec.structs.replace(self._client, profile=self.profile)
        length_us = EPOCH_US if self.profile == "hardened" else HOUR_US
        record = TopicRecord(TOPIC, SCHEMA, profile=self.profile)
        keyring = make_keyring((record,), length_us, ((TOPIC, "publisher"),), number)

        def start(birth: Birth) -> RelayClient:
            client = RelayClient(
                config, keyring, server_keys().public(), self.proxies, birth.rng, birth.entropy, birth.now, birth.stored
            )
            for interest in self.wants[birth.address]:
                client.subscribe(interest, birth.now)
            return client

        return start
