"""The relay's population: a server, its proxies, and clients who publish and subscribe through them.

All machines are the real ones, with the real cryptography; streams are ties of the world. A client publishes by one
proxy and subscribes by the next, as P2 measured it. An owner subscribes whenever its client starts, and acknowledges at
once what is delivered.

A publication is owed as soon as it is on its publisher's disk, to everybody whose interest it matches: whatever breaks
after that, it must arrive. Keys are those of one authority, made once for each process.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Scalar
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.enrolment import ServerKeys
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.sim.checkers import PublicationLog, Unasked, make_subscriber_checker
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.owners import AcknowledgingClients
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.sim.workload import LogsStoredPublications, TopicVocabulary, schedule_publications
from veilcast.sim.world import World
from veilcast.topics import Conjunction, Equal


class RelayPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="relay"):
    """One server; `notes` are published, one every `every_us` from `first_us` on, by the publishers in turn."""

    profile: Profile = "hardened"
    proxies: int = 2
    clients: int = 6
    publishers: int = 2
    """How many of the clients publish; all subscribe."""
    topics: int = 2
    interests: int = 2
    """Of each client."""
    bits: int = 4
    """Of the number that topics have: it counts to 2^bits."""
    notes: int = 20
    first_us: int = 10_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes that are published from this time on must reach everybody who wants them."""
    client: RelayClientConfig = RelayClientConfig(
        retry_us=1_000_000, connect_us=500_000, resume_us=5_000_000, ahead_epochs=3
    )
    proxy: RelayProxyConfig = RelayProxyConfig(connect_us=500_000)
    server: RelayServerConfig = RelayServerConfig(leases_max=1_000, columns_max=4_000)
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "bounds")

    def __post_init__(self) -> None:
        for name in ("proxies", "clients", "publishers", "topics", "interests", "bits", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("notes", "first_us", "owed_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        if self.publishers > self.clients:
            raise ConfigError("population.publishers must not be more than its clients")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")
        if "unasked" in self.checks and self.profile == "paper":
            raise ConfigError('population.checks: "unasked" is for the hardened profile; the paper\'s filters mix')

    def addresses(self) -> tuple[Address, ...]:
        return (SERVER, *self.proxy_names(), *self.client_names())

    def proxy_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"p{number}") for number in range(self.proxies))

    def client_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"c{number}") for number in range(self.clients))

    def draw_subscriptions(self, seed: int) -> dict[Address, tuple[Conjunction, ...]]:
        """What each client wants under this seed, each of it once."""
        return self._vocabulary.draw_subscriptions(seed, self.client_names(), self.interests)

    def populate(self, world: World, duration_us: int) -> None:
        wishes, diary = self.draw_subscriptions(world.seed), PublicationLog()
        others = {"unasked": lambda: Unasked(self.client_names())}
        for check in self.checks:
            world.watch(make_subscriber_checker(check, diary, wishes, lambda machine: _bounds(self, machine), others))
        world.watch(AcknowledgingClients())
        world.add(SERVER, self._server)
        for proxy in self.proxy_names():
            world.add(proxy, self._proxy)
        for number, client in enumerate(self.client_names()):
            world.add(client, self._owner(number, self._keyring(number, world.epoch_us), wishes[client], diary))
            for interest in wishes[client]:
                topic = next(each.text for each in interest.constraints if isinstance(each, Equal))
                world.label(topic, client, "subscriber", world.start, world.start + duration_us)
        publishers = self.client_names()[: self.publishers]
        schedule_publications(
            world,
            publishers,
            self._vocabulary,
            self.notes,
            lambda number: self.first_us + number * self.every_us,
            self.owed_us,
            diary,
        )

    def facts(self, world: World) -> dict[str, int]:
        """What came of it: what stands at the server, what clients got without having asked, and what was refused."""
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

    @property
    def _vocabulary(self) -> TopicVocabulary:
        return TopicVocabulary(tuple(f"relay/{number}" for number in range(self.topics)), self.bits)

    def _keyring(self, number: int, epoch_us: int) -> Keyring:
        role = "publisher" if number < self.publishers else "subscriber"
        length_us = epoch_us if self.profile == "hardened" else HOUR_US
        words = self._vocabulary
        return make_keyring(
            words.topic_records(self.profile), length_us, tuple((each, role) for each in words.topics), number
        )

    def _server(self, birth: Birth) -> RelayServer:
        config = msgspec.structs.replace(self.server, profile=self.profile)
        return RelayServer(config, server_keys(), birth.rng, birth.entropy, birth.now, birth.stored)

    def _proxy(self, birth: Birth) -> RelayProxy:
        config = msgspec.structs.replace(self.proxy, profile=self.profile)
        mask = proxy_mask() if self.profile == "hardened" else None
        public = server_keys().public()
        return RelayProxy(config, public, SERVER, mask, birth.rng, birth.entropy, birth.now, birth.stored)

    def _owner(self, number: int, keyring: Keyring, wishes: tuple[Conjunction, ...], diary: PublicationLog) -> Any:
        names, config = self.proxy_names(), msgspec.structs.replace(self.client, profile=self.profile)
        ways = [names[number % self.proxies], names[(number + 1) % self.proxies]]

        def start(birth: Birth) -> RelayClient:
            client = _LoggedRelayClient(
                config, keyring, server_keys().public(), ways, birth.rng, birth.entropy, birth.now, birth.stored
            )
            client.diary = diary
            for interest in wishes:
                client.subscribe(interest, birth.now)
            return client

        return start


class _LoggedRelayClient(LogsStoredPublications, RelayClient):
    """A client that writes down what it has promised to send."""


def _bounds(population: RelayPopulation, machine: RelayClient | RelayProxy | RelayServer) -> dict[str, int]:
    if isinstance(machine, RelayClient):
        client = population.client
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
        proxy = population.proxy
        return {
            "clients": proxy.clients_max,
            "leases": proxy.clients_max * proxy.leases_each,
            "limits": proxy.clients_max,
            "flying": proxy.flight_max,
            "batch": 2 * proxy.batch_max,
            "backlog": proxy.backlog_max,
        }
    server = population.server
    return {
        "leases": server.leases_max,
        "mailboxes": server.leases_max,
        "matched": server.leases_max,
        "held": server.held_max,
        "waiting": server.waiting_max,
        "remembered": server.remembered_max,
    }


@cache
def server_keys() -> ServerKeys:
    return ServerKeys.draw(SeededEntropy(derive_bytes(0, "server")))


@cache
def proxy_mask() -> Scalar:
    return Scalar.draw(SeededEntropy(derive_bytes(0, "mask")))


SERVER: Final = Address("server")
_CHECKS: Final = ("once", "intact", "matching", "complete", "unasked", "bounds")
