"""The population of secret forwarding: an overlay of virtual nodes with their replicas, and clients at its edge.

All machines are the real ones, with the real cryptography; streams are ties of the world. Some replicas of each node,
never more than it bears, are Byzantine: each is the real machine and does one thing besides (`broker_adversaries`).
Which they are and what they do, how the nodes hang together, and who is at which edge, the seed draws.

An owner subscribes whenever its client starts, and acknowledges at once what is delivered. A publication is owed as
soon as it is on its publisher's disk, to everybody whose interest it matches.


The ground on which a population of brokers stands: keys by name, and overlays as their operator signs them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.brokers.broker import Broker
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.keys.forwarding_hardened import UNRESPONSIVE_MAX
from veilcast.brokers.keys.scheme import ReplicaId, max_faulty
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, node_id, sign_overlay
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError
from veilcast.machine import Address, Machine
from veilcast.sim.brokers.adversaries import BEHAVIOURS, ReplicaView, make_byzantine, provable_lies
from veilcast.sim.brokers.checkers import KeySecrecy, LiarsNamed
from veilcast.sim.brokers.intruder import ClaimExchange, EavesdroppingBroker, Intruder
from veilcast.sim.checkers import PublicationLog, make_subscriber_checker
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.owners import AcknowledgingClients
from veilcast.sim.rng import derive_bytes, derive_rng
from veilcast.sim.workload import LogsStoredPublications, TopicVocabulary, schedule_publications
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Conjunction, Equal


class DrawnOverlay(NamedTuple):
    """What a seed draws: the overlay in all its versions, its liars by what they do, and the edge of each client."""

    overlays: tuple[SignedOverlay, ...]
    liars: dict[Address, str]
    edges: dict[Address, str]

    def first_overlay(self, name: Address) -> SignedOverlay:
        """The first version that this broker is in."""
        return next(
            signed for signed in self.overlays if _read(signed).replica_id(signing_key(name).public) is not None
        )

    def places(self, name: Address) -> list[ReplicaId]:
        """Where this broker stands, version by version."""
        key = signing_key(name).public
        return [place for signed in self.overlays if (place := _read(signed).replica_id(key)) is not None]


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
    """Signed by the operator. `nodes` are v0, v1 and so on, each with its scheme's version and its replicas."""
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


class BrokersPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="brokers"):
    """`notes` are published, one every `every_us` from `first_us` on, by the publishers in turn."""

    nodes: int = 3
    replicas: int = 3
    """Of each node."""
    shape: Literal["line", "random"] = "line"
    """On a line publishers are at one end and readers at the other; else all is drawn."""
    liars: int = 0
    """Byzantine replicas of each node."""
    behaviours: tuple[str, ...] = BEHAVIOURS
    """What they do: each of them one of these, drawn."""
    cast: dict[str, str] = {}
    """Who lies, and how, where that is not drawn."""
    intruders: int = 0
    """Clients of theirs, which have no grant."""
    publishers: int = 1
    readers: int = 2
    topics: int = 2
    interests: int = 1
    """Of each reader."""
    bits: int = 4
    """Of the number that topics have: it counts to 2^bits; with none, all want all of a topic."""
    grow_us: int = 0
    """When the node in the middle gets two replicas more; never, if 0."""
    shrink_us: int = 0
    """When it is left by two that it had from the beginning; never, if 0."""
    notes: int = 20
    first_us: int = 5_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes that are published from this time on must reach everybody who wants them."""
    broker: BrokerConfig = BrokerConfig()
    client: BrokerClientConfig = BrokerClientConfig()
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "secret", "named", "bounds")

    def __post_init__(self) -> None:
        for name in ("nodes", "replicas", "publishers", "readers", "topics", "interests", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("liars", "intruders", "bits", "grow_us", "shrink_us", "notes", "first_us", "owed_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        if self.shrink_us and not 0 < self.grow_us < self.shrink_us:
            raise ConfigError("population.shrink_us: a node shrinks after it has grown")
        if self.liars > max_faulty(self.replicas):
            raise ConfigError(f"population.liars: {self.replicas} replicas bear {max_faulty(self.replicas)}")
        acts, names = (*self.behaviours, *self.cast.values()), self.broker_names()
        for known, given in ((BEHAVIOURS, acts), (_CHECKS, self.checks), (names, tuple(self.cast))):
            for each in given:
                if each not in known:
                    raise ConfigError(f"population: there is no {each!r}, only {', '.join(known)}")
        for node in range(self.nodes):
            if sum(name in self.cast for name in self.replica_names(node)) > max_faulty(self.replicas):
                raise ConfigError(f"population.cast: v{node} bears {max_faulty(self.replicas)} liars")
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
        """Brokers that are not there from the beginning."""
        more = range(self.replicas + 1, self.replicas + 3) if self.grow_us else ()
        return tuple(Address(f"v{self.nodes // 2}.{index}") for index in more)

    def client_names(self) -> tuple[Address, ...]:
        """Publishers come first."""
        return tuple(Address(f"c{number}") for number in range(self.publishers + self.readers))

    def intruder_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"x{number}") for number in range(self.intruders))

    def reader_names(self) -> tuple[Address, ...]:
        return self.client_names()[self.publishers :]

    def draw_subscriptions(self, seed: int) -> dict[Address, tuple[Conjunction, ...]]:
        """What each reader wants under this seed, each of it once."""
        return self._vocabulary.draw_subscriptions(seed, self.reader_names(), self.interests)

    def draw_overlay(self, seed: int) -> DrawnOverlay:
        """Who stands where under this seed, and who lies."""
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
        reading = [edges[reader] for reader in self.reader_names()]
        edges |= {name: rng.choice(reading) for name in self.intruder_names()}
        return DrawnOverlay(self._overlays(links), liars, edges)

    def populate(self, world: World, duration_us: int) -> None:
        wishes, diary, ground = self.draw_subscriptions(world.seed), PublicationLog(), self.draw_overlay(world.seed)
        intruders = self.intruder_names()

        def speak() -> None:
            for name in intruders:
                world.call(name, Intruder.bring_claims)

        coalition = ClaimExchange(intruders, speak)
        brokers = (*self.broker_names(), *self.new_names())
        who = {place: name for name in brokers for place in ground.places(name)}
        honest = [name for name in (*brokers, *self.client_names()) if name not in ground.liars]
        others = {
            "secret": lambda: KeySecrecy((*ground.liars, *self.intruder_names()), self.hardened),
            "named": lambda: LiarsNamed(who, tuple(ground.liars), honest, _suspects),
            "all named": lambda: LiarsNamed(who, tuple(ground.liars), honest, _suspects, all_of_them=True),
        }
        bounds = {kind: _bounds(self, kind) for kind in (Broker, _LoggedBrokerClient, Intruder)}
        for check in self.checks:
            world.watch(make_subscriber_checker(check, diary, wishes, lambda machine: bounds[type(machine)], others))
        world.watch(AcknowledgingClients())
        start = self._broker(ground, world.epoch_us, coalition)
        for name in brokers:
            world.add(name, start, self.grow_us if name in self.new_names() else 0)
        for at_us, signed in zip((self.grow_us, self.shrink_us), ground.overlays[1:], strict=False):
            self._plan_order(world, at_us, signed.encode())
        for number, client in enumerate(self.client_names()):
            keyring = self._keyring(number, world.epoch_us)
            world.add(client, self._owner(ground, keyring, wishes.get(client, ()), diary))
            for interest in wishes.get(client, ()):
                topic = next(each.text for each in interest.constraints if isinstance(each, Equal))
                world.label(topic, client, "subscriber", world.start, world.start + duration_us)
        for name in self.intruder_names():
            world.add(name, self._intruder(ground, coalition))
        schedule_publications(
            world,
            self.client_names()[: self.publishers],
            self._vocabulary,
            self.notes,
            lambda number: self.first_us + number * self.every_us,
            self.owed_us,
            diary,
        )

    def facts(self, world: World) -> dict[str, int]:
        """What came of it: lies that were told, how many are named for it, what was refused; who has left the overlay,
        and by which version of it all others go."""
        brokers = (*self.broker_names(), *self.new_names())
        machines = [each for name in (*brokers, *self.client_names()) if (each := world.machine(name)) is not None]
        up = [unwrap(machine) for name in brokers if (machine := world.machine(name)) is not None]
        liars = [world.machine(name) for name in self.draw_overlay(world.seed).liars]
        return {
            "liars": len(liars),
            "lies": sum(provable_lies(liar).total() for liar in liars),
            "named": len({place: None for machine in machines for place in _suspects(unwrap(machine))}),
            "refused": sum(unwrap(machine).refused.total() for machine in machines),
            "left": sum(broker.left for broker in up),
            "version": min(version_of(broker.signed) for broker in up if not broker.left),
        }

    def _overlays(self, links: tuple[tuple[str, str], ...]) -> tuple[SignedOverlay, ...]:
        """As it is at first, when a node has grown, and when it has shrunk."""
        nodes = [(0, self.replica_names(node)) for node in range(self.nodes)]
        overlays, middle = [make_overlay(1, tuple(nodes), links)], self.nodes // 2
        names = (*nodes[middle][1], *self.new_names())
        for at_us, kept in ((self.grow_us, names), (self.shrink_us, names[2:])):
            if at_us:
                nodes[middle] = (len(overlays), kept)
                overlays.append(make_overlay(1 + len(overlays), tuple(nodes), links))
        return tuple(overlays)

    def _plan_order(self, world: World, at_us: int, order: bytes) -> None:
        """The operator gives it to all brokers that it reaches, which are those at the first node and the last."""

        def take(machine: Machine, now: int) -> None:
            unwrap(machine).order(order, now)

        def give() -> None:
            for name in (*self.replica_names(0), *self.replica_names(self.nodes - 1)):
                world.call(name, take)

        world.after(at_us, give)

    @property
    def _vocabulary(self) -> TopicVocabulary:
        return TopicVocabulary(tuple(f"brokers/{number}" for number in range(self.topics)), self.bits)

    def _keyring(self, number: int, epoch_us: int) -> Keyring:
        words, profile = self._vocabulary, self.client.profile
        role, length_us = "publisher" if number < self.publishers else "subscriber", self._length(epoch_us)
        return make_keyring(
            words.topic_records(profile), length_us, tuple((each, role) for each in words.topics), number
        )

    def _length(self, epoch_us: int) -> int:
        return epoch_us if self.hardened else HOUR_US

    def _broker(self, ground: DrawnOverlay, epoch_us: int, coalition: ClaimExchange) -> Any:
        root = self._keyring(0, epoch_us).root
        places = {name: ground.places(name)[0] for name in self.broker_names()}
        schemes = {place.scheme.node: place.scheme for place in places.values()}

        def start(birth: Birth) -> Machine:
            name = birth.address
            signing = signing_key(name)
            broker = Broker(
                self.broker,
                ground.first_overlay(name),
                operator_key().public,
                name,
                signing,
                root,
                self._length(epoch_us),
                birth.rng,
                birth.entropy,
                birth.now,
            )
            if name not in ground.liars:
                return broker
            rng = derive_rng(birth.seed, "liar", name, str(birth.incarnation))
            peers = {other: place for other, place in places.items() if other != name}
            view = ReplicaView(places[name], signing, peers, schemes, rng, birth.entropy, self.hardened)
            spy = EavesdroppingBroker(make_byzantine(ground.liars[name], broker, view, self.broker.bound_us))
            spy.coalition = coalition
            return spy

        return start

    def _owner(
        self, ground: DrawnOverlay, keyring: Keyring, wishes: tuple[Conjunction, ...], diary: PublicationLog
    ) -> Any:
        def start(birth: Birth) -> BrokerClient:
            client = _LoggedBrokerClient(
                self.client,
                keyring,
                ground.overlays[0],
                operator_key().public,
                ground.edges[birth.address],
                birth.address,
                birth.rng,
                birth.entropy,
                birth.now,
                birth.stored,
            )
            client.diary = diary
            for interest in wishes:
                client.subscribe(interest, birth.now)
            return client

        return start

    def _intruder(self, ground: DrawnOverlay, coalition: ClaimExchange) -> Any:
        def start(birth: Birth) -> Intruder:
            edge = ground.edges[birth.address]
            replicas = {name: signing_key(name).public for name in self.replica_names(int(edge[1:]))}
            return Intruder(replicas, node_id(edge), coalition, birth.entropy, birth.now)

        return start


class _LoggedBrokerClient(LogsStoredPublications, BrokerClient):
    """A client that writes down what it has promised to send."""


def _suspects(machine: Any) -> list[ReplicaId]:
    return list(machine.suspects())


def _bounds(population: BrokersPopulation, kind: type[Broker | BrokerClient | Intruder]) -> dict[str, int]:
    if kind is Intruder:
        return {}
    if issubclass(kind, BrokerClient):
        client = population.client
        return {
            "queued": population.replicas * (client.window + 2 * client.queue_max),
            "claims": 3 * (client.subscriptions_max + population.topics),
            "subscriptions": client.subscriptions_max,
            "advertised": client.advertised_max,
            "keys": client.keys_max,
            "contents": 2 * client.contents_max,
            "opened": 2 * client.unread_max,
            "done": client.seen_max,
            "inbox": client.unread_max,
            "seen": client.seen_max,
            "pending": client.records_max,
            "sealing": client.records_max + population.topics,
            "suspects": client.suspects_max,
        }
    broker = population.broker
    each = broker.window + 2 * (broker.queue_max + broker.claims_max)
    others = population.nodes * population.replicas
    return {
        "clients": broker.clients_max,
        "queued": len(population.addresses()) * each,
        "queued each": each,
        "claims": 2 * broker.claims_max,
        "waiting": broker.waiting_max + population.nodes * broker.claims_each,
        "votes": others * broker.votes_max,
        "votes each": broker.votes_max,
        "ended": broker.claims_max,
        "passages": broker.keys_max,
        "passages past": (1 + others) * broker.done_max,
        "keys dealt": 2 * broker.done_max,
        "absences": UNRESPONSIVE_MAX,
        "hops": 2 * broker.keys_max,
        "handed": broker.keys_max * population.nodes,
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
        "awaited": population.replicas * broker.claims_each,
        "suspects": broker.suspects_max,
    }


_CHECKS: Final = ("once", "intact", "matching", "complete", "secret", "named", "all named", "bounds")
_EARLY: Final = 512 * 256
"""Contents that may come before what they belong to: so many senders, so many of each."""
_EARLY_EACH: Final = 32
"""Portions and words of one replica, of one key."""
