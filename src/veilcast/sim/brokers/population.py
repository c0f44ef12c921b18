"""The population of secret forwarding: an overlay of virtual nodes with their replicas, and clients at its edge.

Some replicas of each node, never more than it tolerates, are Byzantine: each is the real machine and does one thing
that it should not (`adversaries`). The seed draws the links between nodes, the Byzantine replicas with their
behaviours, and the edge node of each client.

A publication must arrive once it is on its publisher's disk, at every subscriber whose interest it matches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.broker import Broker
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.keys.hardened_forwarder import UNRESPONSIVE_MAX
from veilcast.brokers.keys.scheme import ReplicaId, max_faulty
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, node_id, sign_overlay
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError
from veilcast.machine import Address, Machine
from veilcast.sim.brokers.adversaries import BEHAVIOURS, ReplicaView, make_byzantine, provable_lies
from veilcast.sim.brokers.checkers import KeySecrecy, LiarsNamed
from veilcast.sim.brokers.intruder import ClaimExchange, EavesdroppingBroker, Intruder
from veilcast.sim.checkers import Checker
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.population import SubscriberPopulation
from veilcast.sim.rng import derive_bytes, derive_rng
from veilcast.sim.workload import LogsStoredPublications, SubscriberWorkload
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap


class BrokersPopulation(SubscriberPopulation, frozen=True, tag="brokers"):
    """Virtual nodes of replicas; publishers and subscribers are different clients."""

    mode: ClassVar[str] = "brokers"
    known_checks: ClassVar[tuple[str, ...]] = (
        "once",
        "intact",
        "matching",
        "complete",
        "secret",
        "named",
        "all named",
        "bounds",
    )
    positive: ClassVar[tuple[str, ...]] = ("nodes", "replicas", "readers")
    not_negative: ClassVar[tuple[str, ...]] = ("liars", "intruders", "grow_us", "shrink_us")

    nodes: int = 3
    replicas: int = 3
    """Replicas of each node."""
    shape: Literal["line", "random"] = "line"
    """On a line, publishers are at one end and subscribers at the other; "random" draws links and edges."""
    liars: int = 0
    """Byzantine replicas of each node."""
    behaviours: tuple[str, ...] = BEHAVIOURS
    """Behaviours to draw from, one for each Byzantine replica."""
    cast: dict[str, str] = msgspec.field(default_factory=dict)
    """Byzantine replicas with their behaviours; if empty, the seed draws them."""
    intruders: int = 0
    """Clients of the Byzantine replicas, without a grant."""
    publishers: int = 1
    readers: int = 2
    """Number of subscribers."""
    interests: int = 1
    grow_us: int = 0
    """When the middle node gets two more replicas; 0 is never."""
    shrink_us: int = 0
    """When two of the middle node's first replicas leave; 0 is never."""
    first_us: int = 5_000_000
    broker: BrokerConfig = BrokerConfig()
    client: BrokerClientConfig = BrokerClientConfig()
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "secret", "named", "bounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        tolerated = max_faulty(self.replicas)
        if self.shrink_us and not 0 < self.grow_us < self.shrink_us:
            raise ConfigError("population.shrink_us: a node shrinks after it has grown")
        if self.liars > tolerated:
            raise ConfigError(f"population.liars: {self.replicas} replicas bear {tolerated}")
        for known, given in (
            (BEHAVIOURS, (*self.behaviours, *self.cast.values())),
            (self.broker_names(), tuple(self.cast)),
        ):
            for each in given:
                if each not in known:
                    raise ConfigError(f"population: there is no {each!r}, only {', '.join(known)}")
        for node in range(self.nodes):
            if sum(name in self.cast for name in self.replica_names(node)) > tolerated:
                raise ConfigError(f"population.cast: v{node} bears {tolerated} liars")
        if not self.behaviours or self.broker.profile != self.client.profile:
            raise ConfigError("population: liars do something, and all of an overlay is of one profile")

    @property
    def hardened(self) -> bool:
        return self.broker.profile == "hardened"

    def addresses(self) -> tuple[Address, ...]:
        return (*self.broker_names(), *self.new_names(), *self.client_names(), *self.intruder_names())

    def broker_names(self) -> tuple[Address, ...]:
        return tuple(name for node in range(self.nodes) for name in self.replica_names(node))

    def replica_names(self, node: int) -> tuple[Address, ...]:
        return tuple(Address(f"v{node}.{index}") for index in range(1, self.replicas + 1))

    def new_names(self) -> tuple[Address, ...]:
        """Brokers that join when the middle node grows."""
        more = range(self.replicas + 1, self.replicas + 3) if self.grow_us else ()
        return tuple(Address(f"v{self.nodes // 2}.{index}") for index in more)

    def client_names(self) -> tuple[Address, ...]:
        """All clients with a grant, publishers first."""
        return tuple(Address(f"c{number}") for number in range(self.publishers + self.readers))

    def publisher_names(self) -> tuple[Address, ...]:
        return self.client_names()[: self.publishers]

    def subscriber_names(self) -> tuple[Address, ...]:
        return self.client_names()[self.publishers :]

    def intruder_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"x{number}") for number in range(self.intruders))

    def draw_overlay(self, seed: int) -> DrawnOverlay:
        """The overlay, its Byzantine replicas and the clients' edges under this seed."""
        rng = derive_rng(seed, "overlay")
        parents = [node - 1 if self.shape == "line" else rng.randrange(node) for node in range(1, self.nodes)]
        links = tuple((f"v{parent}", f"v{node}") for node, parent in enumerate(parents, 1))
        liars = {Address(name): behaviour for name, behaviour in self.cast.items()}
        for node in range(0 if self.cast else self.nodes):
            for name in rng.sample(self.replica_names(node), self.liars):
                liars[name] = rng.choice(self.behaviours)
        edges: dict[Address, str] = {}
        for number, client in enumerate(self.client_names()):
            end = 0 if number < self.publishers else self.nodes - 1
            edges[client] = f"v{end if self.shape == 'line' else rng.randrange(self.nodes)}"
        subscribed = [edges[name] for name in self.subscriber_names()]
        edges |= {name: rng.choice(subscribed) for name in self.intruder_names()}
        return DrawnOverlay(self._versions(links), liars, edges)

    def populate(self, world: World, duration_us: int) -> None:
        workload, overlay = self._make_workload(world, duration_us), self.draw_overlay(world.seed)
        bounds = {kind: self._bounds(kind) for kind in (Broker, _LoggedBrokerClient, Intruder)}
        workload.watch(self.checks, lambda machine: bounds[type(machine)], self._special_checkers(overlay))
        exchange = self._make_exchange(world)
        start = self._broker_factory(overlay, world.epoch_us, exchange)
        for name in (*self.broker_names(), *self.new_names()):
            world.add(name, start, self.grow_us if name in self.new_names() else 0)
        for at_us, signed in zip((self.grow_us, self.shrink_us), overlay.versions[1:], strict=False):
            self._schedule_order(world, at_us, signed.encode())
        for number, client in enumerate(self.client_names()):
            workload.add_member(client, self._client_factory(overlay, number, world.epoch_us, workload))
        for name in self.intruder_names():
            world.add(name, self._intruder_factory(overlay, exchange))
        self._schedule_publications(workload)

    def facts(self, world: World) -> dict[str, int]:
        """Byzantine replicas, their provable lies, replicas that are named for one, refused messages, brokers that have
        left the overlay, and the oldest version of it that another broker uses."""
        brokers = (*self.broker_names(), *self.new_names())
        machines = [each for name in (*brokers, *self.client_names()) if (each := world.machine(name)) is not None]
        up = [unwrap(machine) for name in brokers if (machine := world.machine(name)) is not None]
        liars = [world.machine(name) for name in self.draw_overlay(world.seed).liars]
        return {
            "liars": len(liars),
            "lies": sum(provable_lies(liar).total() for liar in liars),
            "named": len({place: None for machine in machines for place in _suspects(unwrap(machine))}),
            "refused": sum(unwrap(machine).refused.total() for machine in machines),
            "left": sum(broker.has_left for broker in up),
            "version": min(version_of(broker.signed) for broker in up if not broker.has_left),
        }

    def _versions(self, links: tuple[tuple[str, str], ...]) -> tuple[SignedOverlay, ...]:
        """The overlay at first, after the middle node has grown, and after it has shrunk."""
        nodes = [(0, self.replica_names(node)) for node in range(self.nodes)]
        overlays, middle = [make_overlay(1, tuple(nodes), links)], self.nodes // 2
        names = (*nodes[middle][1], *self.new_names())
        for at_us, kept in ((self.grow_us, names), (self.shrink_us, names[2:])):
            if at_us:
                nodes[middle] = (len(overlays), kept)
                overlays.append(make_overlay(1 + len(overlays), tuple(nodes), links))
        return tuple(overlays)

    def _schedule_order(self, world: World, at_us: int, order: bytes) -> None:
        """The operator gives the order to all brokers that it reaches: those of the first node and of the last."""

        def take(machine: Machine, now: int) -> None:
            unwrap(machine).accept_order(order, now)

        def give() -> None:
            for name in (*self.replica_names(0), *self.replica_names(self.nodes - 1)):
                world.call(name, take)

        world.after(at_us, give)

    def _special_checkers(self, overlay: DrawnOverlay) -> dict[str, Callable[[], Checker]]:
        liars, brokers = tuple(overlay.liars), (*self.broker_names(), *self.new_names())
        owners = {replica: name for name in brokers for replica in overlay.replica_ids(name)}
        honest = [name for name in (*brokers, *self.client_names()) if name not in overlay.liars]
        return {
            "secret": lambda: KeySecrecy((*liars, *self.intruder_names()), self.hardened),
            "named": lambda: LiarsNamed(owners, liars, honest, _suspects),
            "all named": lambda: LiarsNamed(owners, liars, honest, _suspects, all_of_them=True),
        }

    def _make_exchange(self, world: World) -> ClaimExchange:
        intruders = self.intruder_names()

        def wake() -> None:
            for name in intruders:
                world.call(name, Intruder.bring_claims)

        return ClaimExchange(intruders, wake)

    @property
    def _profile(self) -> Profile:
        return self.client.profile

    def _broker_factory(self, overlay: DrawnOverlay, epoch_us: int, exchange: ClaimExchange) -> MachineFactory:
        root = self._keyring(0, epoch_us).root
        replicas = {name: overlay.replica_ids(name)[0] for name in self.broker_names()}
        schemes = {replica.scheme.node: replica.scheme for replica in replicas.values()}

        def start(birth: Birth) -> Machine:
            name = birth.address
            signing = signing_key(name)
            broker = Broker(
                self.broker,
                overlay.first_overlay(name),
                operator_key().public,
                name,
                signing,
                root,
                self._epoch_length(epoch_us),
                birth.rng,
                birth.entropy,
                birth.now,
            )
            if name not in overlay.liars:
                return broker
            rng = derive_rng(birth.seed, "liar", name, str(birth.incarnation))
            peers = {other: replica for other, replica in replicas.items() if other != name}
            view = ReplicaView(replicas[name], signing, peers, schemes, rng, birth.entropy, self.hardened)
            eavesdropper = EavesdroppingBroker(make_byzantine(overlay.liars[name], broker, view, self.broker.bound_us))
            eavesdropper.exchange = exchange
            return eavesdropper

        return start

    def _client_factory(
        self, overlay: DrawnOverlay, number: int, epoch_us: int, workload: SubscriberWorkload
    ) -> MachineFactory:
        keyring = self._keyring(number, epoch_us)

        def start(birth: Birth) -> BrokerClient:
            client = _LoggedBrokerClient(
                self.client,
                keyring,
                overlay.versions[0],
                operator_key().public,
                overlay.edges[birth.address],
                birth.address,
                birth.rng,
                birth.entropy,
                birth.now,
                birth.stored,
            )
            return workload.subscribe(client, birth)

        return start

    def _intruder_factory(self, overlay: DrawnOverlay, exchange: ClaimExchange) -> MachineFactory:
        def start(birth: Birth) -> Intruder:
            edge = overlay.edges[birth.address]
            replicas = {name: signing_key(name).public for name in self.replica_names(int(edge[1:]))}
            return Intruder(replicas, node_id(edge), exchange, birth.entropy, birth.now)

        return start

    def _bounds(self, kind: type[Broker | BrokerClient | Intruder]) -> dict[str, int]:
        if kind is Intruder:
            return {}
        if issubclass(kind, BrokerClient):
            client = self.client
            return {
                "queued": self.replicas * (client.window + 2 * client.queue_max),
                "claims": 3 * (client.subscriptions_max + self.topics),
                "subscriptions": client.subscriptions_max,
                "advertised": client.advertised_max,
                "keys": client.keys_max,
                "contents": 2 * client.contents_max,
                "opened": 2 * client.unread_max,
                "done": client.seen_max,
                "inbox": client.unread_max,
                "seen": client.seen_max,
                "pending": client.records_max,
                "sealing": client.records_max + 3 * self.topics,
                "suspects": client.suspects_max,
            }
        broker = self.broker
        each = broker.window + 2 * (broker.queue_max + broker.claims_max)
        others = self.nodes * self.replicas
        return {
            "clients": broker.clients_max,
            "queued": len(self.addresses()) * each,
            "queued each": each,
            "claims": 2 * broker.claims_max,
            "waiting": broker.waiting_max + self.nodes * broker.claims_each,
            "votes": others * broker.votes_max,
            "votes each": broker.votes_max,
            "ended": broker.claims_max,
            "passages": broker.keys_max,
            "passages past": (1 + others) * broker.done_max,
            "keys dealt": 2 * broker.done_max,
            "absences": UNRESPONSIVE_MAX,
            "hops": 2 * broker.keys_max,
            "handed": broker.keys_max * self.nodes,
            "early": others * (broker.done_max + _EARLY_EACH * broker.keys_max),
            "pieces past": broker.done_max,
            "trails": broker.claims_max,
            "keys wanted": broker.keys_max,
            "keys": broker.keys_max,
            "contents": broker.contents_max,
            "content bytes": broker.contents_bytes,
            "contents done": broker.done_max,
            "contents early": _EARLY,
            "contents asked for": broker.contents_max,
            "awaited": self.replicas * broker.claims_each,
            "suspects": broker.suspects_max,
        }


class _LoggedBrokerClient(LogsStoredPublications, BrokerClient):
    pass


class DrawnOverlay(NamedTuple):
    """The overlay that a seed draws."""

    versions: tuple[SignedOverlay, ...]
    liars: dict[Address, str]
    """Byzantine replicas with their behaviours."""
    edges: dict[Address, str]
    """Edge node of each client."""

    def first_overlay(self, name: Address) -> SignedOverlay:
        """The first version that has this broker."""
        return next(
            signed for signed in self.versions if _read(signed).replica_id(signing_key(name).public) is not None
        )

    def replica_ids(self, name: Address) -> list[ReplicaId]:
        """The replica that this broker is, in each version that has it."""
        key = signing_key(name).public
        return [replica for signed in self.versions if (replica := _read(signed).replica_id(key)) is not None]


@cache
def signing_key(name: Address) -> SigningKey:
    return SigningKey(Secret(derive_bytes(0, "broker", name)[:32]))


@cache
def operator_key() -> SigningKey:
    return SigningKey(Secret(derive_bytes(0, "operator")[:32]))


@cache
def make_overlay(
    version: int, nodes: tuple[tuple[int, tuple[Address, ...]], ...], links: tuple[tuple[str, str], ...]
) -> SignedOverlay:
    """Sign an overlay as the operator. `nodes` are v0, v1 and so on, each with its scheme's version and replicas."""
    entries = tuple(
        NodeEntry(f"v{node}", scheme, tuple(Replica(signing_key(name).public, name, name) for name in names))
        for node, (scheme, names) in enumerate(nodes)
    )
    return sign_overlay(BrokerOverlay(version, entries, links), operator_key())


def version_of(signed: SignedOverlay) -> int:
    return _read(signed).version


@cache
def _read(signed: SignedOverlay) -> BrokerOverlay:
    return signed.verify(operator_key().public)


def _suspects(machine: Any) -> list[ReplicaId]:
    return list(machine.suspects())


_EARLY: Final = 512 * 256
"""Most content blocks that may come before their advertisement: 512 senders, 256 of each."""
_EARLY_EACH: Final = 32
"""Most dealings and agreement messages of one replica for one key."""
