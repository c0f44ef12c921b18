"""The relay's population: a server, its proxies, and clients that publish and subscribe through them.

A client publishes through one proxy and subscribes through the next, as P2 measured it.

A publication must arrive once it is on its publisher's disk, at every client whose interest it matches, whatever
breaks after that.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Scalar
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.checkers import Unasked
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.population import SubscriberPopulation
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.sim.workload import LogsStoredPublications, SubscriberWorkload
from veilcast.sim.world import World


class RelayPopulation(SubscriberPopulation, frozen=True, tag="relay"):
    """One server. All clients subscribe, and the first `publishers` of them publish."""

    mode: ClassVar[str] = "relay"
    known_checks: ClassVar[tuple[str, ...]] = ("once", "intact", "matching", "complete", "unasked", "bounds")
    positive: ClassVar[tuple[str, ...]] = ("proxies", "clients", "bits")

    profile: Profile = "hardened"
    proxies: int = 2
    clients: int = 6
    client: RelayClientConfig = RelayClientConfig(
        retry_us=1_000_000, connect_us=500_000, resume_us=5_000_000, ahead_epochs=3, lead_epochs=3
    )
    proxy: RelayProxyConfig = RelayProxyConfig(connect_us=500_000, poll_us=5_000_000, retry_us=1_000_000)
    server: RelayServerConfig = RelayServerConfig(leases_max=1_000, columns_max=4_000)
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "bounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.publishers > self.clients:
            raise ConfigError("population.publishers must not be more than its clients")
        if "unasked" in self.checks and self.profile == "paper":
            raise ConfigError('population.checks: "unasked" is for the hardened profile; the paper\'s filters mix')

    def addresses(self) -> tuple[Address, ...]:
        return (SERVER, *self.proxy_names(), *self.client_names())

    def proxy_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"p{number}") for number in range(self.proxies))

    def client_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"c{number}") for number in range(self.clients))

    def publisher_names(self) -> tuple[Address, ...]:
        return self.client_names()[: self.publishers]

    def subscriber_names(self) -> tuple[Address, ...]:
        return self.client_names()

    def populate(self, world: World, duration_us: int) -> None:
        workload = self._make_workload(world, duration_us)
        workload.watch(self.checks, self._bounds, {"unasked": lambda: Unasked(self.client_names())})
        world.add(SERVER, self._start_server)
        for proxy in self.proxy_names():
            world.add(proxy, self._start_proxy)
        for number, client in enumerate(self.client_names()):
            workload.add_member(client, self._client_factory(number, world.epoch_us, workload))
        self._schedule_publications(workload)

    def facts(self, world: World) -> dict[str, int]:
        """Leases and stored messages at the server, matches, excess deliveries to clients, and refused messages."""
        server: RelayServer | None = world.machine(SERVER)
        clients = [client for name in self.client_names() if (client := world.machine(name)) is not None]
        sizes = {} if server is None else server.sizes()
        return {
            "leases": sizes.get("leases", 0),
            "held": sizes.get("held", 0),
            "matched": 0 if server is None else server.matched,
            "excess": sum(client.excess for client in clients),
            "refused": sum(sum(client.refused.values()) for client in clients),
        }

    def _start_server(self, birth: Birth) -> RelayServer:
        config = msgspec.structs.replace(self.server, profile=self.profile)
        return RelayServer(config, server_keys(), birth.rng, birth.entropy, birth.now, birth.stored)

    def _start_proxy(self, birth: Birth) -> RelayProxy:
        config = msgspec.structs.replace(self.proxy, profile=self.profile)
        mask = proxy_mask() if self.profile == "hardened" else None
        public = server_keys().public()
        return RelayProxy(config, public, [SERVER], mask, birth.rng, birth.entropy, birth.now, birth.stored)

    def _client_factory(self, number: int, epoch_us: int, workload: SubscriberWorkload) -> MachineFactory:
        keyring, names = self._keyring(number, epoch_us), self.proxy_names()
        config = msgspec.structs.replace(self.client, profile=self.profile)
        proxies = [names[number % self.proxies], names[(number + 1) % self.proxies]]

        def start(birth: Birth) -> RelayClient:
            client = _LoggedRelayClient(
                config, keyring, server_keys().public(), proxies, birth.rng, birth.entropy, birth.now, birth.stored
            )
            return workload.subscribe(client, birth)

        return start

    @property
    def _profile(self) -> Profile:
        return self.profile

    def _bounds(self, machine: RelayClient | RelayProxy | RelayServer) -> dict[str, int]:
        if isinstance(machine, RelayClient):
            client = self.client
            terms = client.subscriptions_max * (client.ahead_epochs + 6)
            return {
                "requests": client.records_max + terms,
                "subscriptions": client.subscriptions_max,
                "leases": terms,
                "inbox": client.unread_max,
                "seen": client.seen_max,
                "pending": client.records_max,
                "backlog": client.backlog_max,
            }
        if isinstance(machine, RelayProxy):
            proxy = self.proxy
            return {
                "clients": proxy.clients_max,
                "leases": proxy.clients_max * proxy.leases_each,
                "limits": proxy.clients_max,
                "flying": proxy.flight_max,
                "batch": 2 * proxy.batch_max,
                "backlog": proxy.backlog_max,
                "held": proxy.held_max,
                "remembered": proxy.held_max,
            }
        server = self.server
        return {
            "leases": server.leases_max,
            "mailboxes": server.leases_max,
            "matched": server.leases_max,
            "held": server.held_max,
            "waiting": server.waiting_max,
            "remembered": server.remembered_max,
        }


class _LoggedRelayClient(LogsStoredPublications, RelayClient):
    pass


@cache
def server_keys() -> ServerKeys:
    return ServerKeys.draw(SeededEntropy(derive_bytes(0, "server")))


@cache
def proxy_mask() -> Scalar:
    return Scalar.draw(SeededEntropy(derive_bytes(0, "mask")))


SERVER: Final = Address("server")
