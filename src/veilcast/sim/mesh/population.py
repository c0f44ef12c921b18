"""The mesh's population: mesh nodes, publishers and a share of subscribers, with one topic or many.

Their neighbourhood is a small world that is given to them. If `mesh.membership` is "scamp" or "certified", they build
it themselves, joining one after another through the first few nodes.

One authority in memory issues all keys, once for each process. Nodes with the same role share a keyring: only the link
key in it is a member's own, and there are no links here. Certified nodes prove their membership, so each has its own.
An owner subscribes or advertises whenever its node starts, and acknowledges every delivery at once.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, Final

import msgspec

from veilcast.authority import issuer
from veilcast.authority.epoch import BATCH_MAX, HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Machine, Note, Publication
from veilcast.mesh.certified import LOOKS_MAX
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.forwarding_load import ForwardingLoad
from veilcast.mesh.link_admission import VISITS_MAX
from veilcast.mesh.node import MeshNode
from veilcast.mesh.scamp import FAILED_MAX
from veilcast.sim.checkers import (
    AtMostOnce,
    Bounded,
    Checker,
    Everyone,
    InOrder,
    Intact,
    OnlySubscribers,
    OverlayConnected,
)
from veilcast.sim.engine import START_US
from veilcast.sim.graphs import check_small_world, is_connected, watts_strogatz
from veilcast.sim.host import MachineFactory
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.sim.mesh.checkers import (
    LocksExpire,
    ParentsLeadToRoot,
    PublisherOrder,
    SentNote,
    SubscribersAlwaysReachable,
    SubscribersReachable,
    TopicChecker,
    UniqueNonces,
    mesh_node_at,
)
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.topic_roles import (
    TopicRoles,
    addresses_with_role,
    draw_topic_roles,
    grants_for_roles,
)
from veilcast.sim.rng import SeededEntropy, derive_bytes, derive_rng
from veilcast.sim.workload import AcknowledgingClients
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label


class MeshPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="mesh"):
    """`notes` are published by the publishers in turn, one every `every_us` from `first_us` on."""

    nodes: int = 20
    neighbours: int = 4
    rewire: float = 0.2
    subscribers: float = 0.3
    """Share of the nodes that subscribe, not counting the publisher."""
    notes: int = 10
    first_us: int = 20_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes published from this time on must reach every subscriber: after the faults, and some time for repair."""
    mesh: MeshConfig = MeshConfig(neighbours_max=20, address_bytes_max=8)
    """Configuration of the nodes; the heartbeat is as small as short addresses allow."""
    checks: tuple[str, ...] = ("once", "order", "intact", "readers", "bounds", "everyone")
    cover_share: float = 0.78
    """Kappa of the topic in the hardened profile: the share of other nodes that act as subscribers."""
    contacts: int = 3
    """Number of first nodes that the others join through, if they build their neighbourhood themselves."""
    join_us: int = 500_000
    """Time between the starts of two nodes, if they build their neighbourhood themselves, in microseconds."""
    forgers: int = 0
    """Number of other nodes that know the topic's key and forge advertisements and notes (see `adversaries`)."""
    publishers: int = 1
    prefixes: int = 0
    """Number of prefixes that the addresses are spread over; 0 is one for each address."""
    link: LinkConfig | None = None
    """Configuration of the secured links between nodes; without it, messages travel in plain text."""
    whole: bool = True
    """True if a disconnected neighbourhood is refused. If it is accepted, nodes in other components get no notes."""
    topics: int = 1
    """Each topic has its own publisher and subscribers, drawn from all nodes; notes are published on the topics in
    turn."""

    def __post_init__(self) -> None:
        check_small_world(self.nodes, self.neighbours, self.rewire)
        if not 0 <= self.cover_share <= 1:
            raise ConfigError("population.cover_share must be a share between 0 and 1")
        if not 0 < self.subscribers <= 1:
            raise ConfigError("population.subscribers must be a share between 0 and 1")
        for name in ("notes", "first_us", "owed_us", "forgers", "prefixes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        for name in ("every_us", "contacts", "join_us", "publishers", "topics"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        if self.link is not None and "nonces" in self.checks:
            raise ConfigError('population.checks: "nonces" looks into notes, and links show none')
        if self.mesh.profile == "hardened" and any(check in self.checks for check in ("tree", "reach")):
            raise ConfigError('population.checks: "tree" and "reach" are for the paper\'s profile')
        if self.topics > 1 and (self.publishers > 1 or any(check in self.checks for check in _OF_ONE_TOPIC)):
            raise ConfigError(
                f"population.topics: with many there is no second publisher, nor {', '.join(_OF_ONE_TOPIC)}"
            )
        if self.publishers + self._subscriber_count + self.forgers > self.nodes:
            raise ConfigError("population.nodes must be enough for its publishers, subscribers and forgers")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")

    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{i % self.prefixes}.{i}" if self.prefixes else f"n{i}") for i in range(self.nodes))

    def roles(self, seed: int) -> tuple[Address, tuple[Address, ...]]:
        """The first publisher and the subscribers under this seed."""
        publisher, *subscribers = derive_rng(seed, "roles").sample(self.addresses(), self._subscriber_count + 1)
        return publisher, tuple(subscribers)

    def draw_roles(self, seed: int) -> dict[str, TopicRoles]:
        """The roles in each topic; its first publisher comes first."""
        others = {
            name: draw_topic_roles(seed, place, self.addresses(), self._subscriber_count)
            for place, name in enumerate(self._names)
            if place > 0
        }
        return {TOPIC: self._first_topic_roles(seed)} | others

    def _first_topic_roles(self, seed: int) -> TopicRoles:
        publisher, subscribers = self.roles(seed)
        roles = {publisher: "publisher"} | dict.fromkeys(subscribers, "subscriber")
        others = [address for address in self.addresses() if address not in roles]
        more = self.publishers - 1
        return (
            roles | dict.fromkeys(others[:more], "publisher") | dict.fromkeys(others[more:][: self.forgers], "forger")
        )

    def populate(self, world: World, duration_us: int) -> None:
        addresses, roles_by_topic, graph = self.addresses(), self.draw_roles(world.seed), self._graph(world.seed)
        logs = {topic: _TopicLog() for topic in roles_by_topic}
        for check in self.checks:
            for topic, roles in roles_by_topic.items() if check in _OF_A_TOPIC else [(TOPIC, roles_by_topic[TOPIC])]:
                checker = self._checker(
                    check,
                    logs[topic],
                    addresses_with_role(roles, "publisher"),
                    addresses_with_role(roles, "subscriber"),
                )
                world.watch(TopicChecker(topic, checker) if check in _OF_A_TOPIC and self.topics > 1 else checker)
        world.watch(AcknowledgingClients())
        neighbours: dict[Address, list[Address]] = {address: [] for address in addresses}
        for u, v in graph:
            neighbours[u].append(v)
            neighbours[v].append(u)
        for number, address in enumerate(addresses):
            own_roles = {topic: roles[address] for topic, roles in roles_by_topic.items() if address in roles}
            keyring = self._keyring(own_roles, number, world.epoch_us)
            if self._joining:
                contacts = addresses[: self.contacts]
                owner = MeshNodeOwner(
                    self.mesh, keyring, own_roles, contacts, address_prefix, earlier=number, link=self.link
                )
                world.add(address, self._started(owner, address), number * self.join_us)
            else:
                owner = MeshNodeOwner(
                    self.mesh, keyring, own_roles, neighbours[address], address_prefix, link=self.link
                )
                world.add(address, self._started(owner, address))
            for topic, role in own_roles.items():
                for part in ("publisher", "subscriber") if role == "both" else (role,):
                    if part != "forger":
                        world.label(topic, address, part, world.start, world.start + duration_us)
        for u, v in graph:
            world.connect(u, v)
        names = list(roles_by_topic)
        for number in range(self.notes):
            topic, turn = names[number % self.topics], number // self.topics
            publishers = addresses_with_role(roles_by_topic[topic], "publisher")
            self._schedule_note(world, topic, publishers[turn % len(publishers)], number, logs[topic])

    def facts(self, world: World) -> dict[str, int]:
        """Size of all meshes, swaps, messages sent by running nodes by kind, and the cost of notes.

        That cost is copies for the nodes themselves, copies and bytes for others, and the most copies for others of one
        node.
        """
        sent: Counter[str] = Counter()
        swaps, own_copies, cover_copies, cover_bytes, most = 0, 0, 0, 0, 0
        for address in self.addresses():
            if (machine := mesh_node_at(world, address)) is not None:
                sent.update(machine.sent)
                swaps += machine.overlay.policy.swaps_completed()
                load: ForwardingLoad = machine.load
                own_copies += load.own.copies
                cover_copies += load.others.copies
                cover_bytes += load.others.size
                most = max(most, load.others.copies)
        carried = {
            "own copies": own_copies,
            "cover copies": cover_copies,
            "cover bytes": cover_bytes,
            "most cover": most,
        }
        size = sum(len(self.mesh_members(world, topic)) for topic in self._names)
        return {"mesh": size, "swaps": swaps, **carried, **dict(sorted(sent.items()))}

    def mesh_members(self, world: World, topic: str | None = None) -> list[Address]:
        """The nodes of a topic's mesh, V_a: the publisher, and every node with a neighbour in it."""
        token = self.token(world, topic)
        present = [(address, mesh_node_at(world, address)) for address in self.addresses()]
        return [
            address
            for address, machine in present
            if machine is not None and (machine.overlay.originates(token) or token in machine.overlay.branches.tokens())
        ]

    def token(self, world: World, topic: str | None = None) -> bytes:
        """The current token of a topic, by default of the first one."""
        topic = topic or TOPIC
        if self.mesh.profile == "paper" and self.topics == 1:
            return topic_token()
        keyring = self._keyring({topic: "subscriber"}, 0, world.epoch_us)
        return keyring.keys_at(epoch_of(world.now, keyring.epoch_us)).topic(topic).token

    def _started(self, owner: MeshNodeOwner, address: Address) -> MachineFactory:
        """The factory of this node; subclasses wrap it."""
        return owner.start

    def _keyring(self, roles: dict[str, str], number: int, epoch_us: int) -> Keyring:
        """Nodes with one role share a keyring. If nodes prove their membership, each has its own."""
        profile = self.mesh.profile
        if profile == "paper" and self.topics == 1:
            role = roles.get(TOPIC, "forwarder")
            shown = self.mesh.membership == "certified" or self.link is not None
            return make_own_keyring(role, self.addresses()[number]) if shown else role_keyrings()[role]
        length_us = epoch_us if profile == "hardened" else HOUR_US
        return make_keyring(
            make_topic_records(self._names, self.cover_share, profile), length_us, grants_for_roles(roles), number
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return (TOPIC, *(f"{TOPIC}/{place}" for place in range(1, self.topics)))

    @property
    def _subscriber_count(self) -> int:
        return min(max(1, round(self.subscribers * self.nodes)), self.nodes - 1)

    @property
    def _joining(self) -> bool:
        return self.mesh.membership != "fixed"

    def _graph(self, seed: int) -> list[tuple[Address, Address]]:
        """The pairs of neighbours; empty, if nodes build their neighbourhood themselves."""
        if self._joining:
            return []
        graph = watts_strogatz(self.nodes, self.neighbours, self.rewire, derive_rng(seed, "graph"))
        if self.whole and not is_connected(self.nodes, graph):
            raise ConfigError(f"the neighbourhood of seed {seed} falls apart; more neighbours or another seed")
        most = max(Counter(end for edge in graph for end in edge).values())
        if most > self.mesh.neighbours_max:
            raise ConfigError(f"seed {seed} gives a node {most} neighbours; mesh.neighbours_max is too small for it")
        addresses = self.addresses()
        return [(addresses[u], addresses[v]) for u, v in graph]

    def _schedule_note(self, world: World, topic: str, publisher: Address, number: int, log: _TopicLog) -> None:
        body = b"note %d" % number
        publication = Publication((Label(topic).pair,), body)
        turn = number // self.topics // self.publishers
        at_us = self.first_us + number * self.every_us

        def publish(machine: Machine, now: int) -> None:
            log.sent[body] = publication
            log.turns[body] = SentNote((publisher, world.incarnation(publisher)), turn, world.now)
            if at_us >= self.owed_us:
                log.owed[body] = None
            unwrap(machine).publish(publication, now)

        world.after(at_us, lambda: world.call(publisher, publish))

    def _checker(self, check: str, log: _TopicLog, publishers: list[Address], subscribers: list[Address]) -> Checker:
        match check:
            case "once":
                return AtMostOnce()
            case "order":
                return InOrder(lambda note: int(note.publication.body.split()[1]))
            case "intact":
                return Intact(log.sent, _body)
            case "turns":
                return PublisherOrder(log.turns, self.mesh.gap_us)
            case "nonces":
                return UniqueNonces()
            case "readers":
                return OnlySubscribers(subscribers)
            case "everyone":
                return Everyone(log.owed, subscribers, _body)
            case "connected":
                return OverlayConnected(self.addresses(), lambda machine: unwrap(machine).overlay.present_neighbours())
            case "leases":
                period_us = self.mesh.heartbeat_us
                return LocksExpire(self.mesh.shellgame.lease_periods * period_us, period_us)
            case "tree":
                return ParentsLeadToRoot(topic_token())
            case "reach":
                return SubscribersReachable(topic_token(), publishers, subscribers)
            case "steady":
                return SubscribersAlwaysReachable(topic_token(), publishers, subscribers, self.owed_us)
            case _:
                return Bounded("entries over the bounds of a table", 0, self._excess)

    def _excess(self, machine: MeshNode) -> int:
        mesh = self.mesh
        links = mesh.neighbours_max if self._joining else self.neighbours * 4
        links += mesh.shellgame.acquaintances_max
        bounds = {
            "routes": mesh.tokens_max * mesh.origins_max * links,
            "branches": 2 * mesh.tokens_max * links,
            "queued": mesh.queue_max * links,
            "seen": 2 * mesh.defences.seen_each if mesh.defences.replay else mesh.seen_max,
            "inbox": 2 * mesh.unread_max,
            "policy": mesh.tokens_max * (6 + links),
            "calls": mesh.tokens_max,
            "passages": mesh.hardening.passages_max,
            "pending": mesh.records_max,
            "held": mesh.hardening.pending_max,
            "parcels": mesh.hardening.pending_max,
            "neighbours": mesh.neighbours_max,
            "passive": mesh.certified.book_max if mesh.membership == "certified" else mesh.scamp.passive_max,
            "failed": FAILED_MAX,
            "tries": LOOKS_MAX,
            "prefixes": VISITS_MAX,
        }
        return sum(max(0, size - bounds[table]) for table, size in machine.sizes().items())


class _TopicLog:
    """Sent notes, their place in the publisher's order, and those that every subscriber must get."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Publication] = {}
        self.turns: dict[bytes, SentNote] = {}
        self.owed: dict[bytes, None] = {}


def address_prefix(address: Address) -> str:
    """The part of an address before the dot, or all of it."""
    return address.partition(".")[0]


def role_keyrings() -> dict[str, Keyring]:
    """One keyring for each role. A forwarder's has a membership and no grant."""
    return _issue_keyrings()[1]


@cache
def make_own_keyring(role: str, member: str) -> Keyring:
    """A keyring for this role, with a membership of its own."""
    entropy, epoch = SeededEntropy(derive_bytes(0, "member", member)), epoch_of(START_US, HOUR_US)
    _, own = issuer.grant_ready(_issue_keyrings()[0], member, [], epoch, BATCH_MAX, entropy)
    return msgspec.structs.replace(role_keyrings()[role], membership=own.membership)


@cache
def _issue_keyrings() -> tuple[issuer.Authority, dict[str, Keyring]]:
    entropy = SeededEntropy(derive_bytes(0, "authority"))
    state = issuer.declare_label(issuer.create(HOUR_US, entropy), TOPIC, "paper", entropy)
    epoch, rings = epoch_of(START_US, HOUR_US), {}
    for role, wanted in _GRANTS.items():
        state, rings[role] = issuer.grant_ready(state, role, wanted, epoch, BATCH_MAX, entropy)
    return state, rings


@cache
def topic_token() -> bytes:
    return role_keyrings()["subscriber"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC).token


def _body(note: Note) -> bytes:
    return note.publication.body


TOPIC: Final = "mesh"
_GRANTS: Final[dict[str, Any]] = {
    "publisher": [(TOPIC, "publisher")],
    "subscriber": [(TOPIC, "subscriber")],
    "forwarder": [],
    "forger": [(TOPIC, "subscriber")],
}
_CHECKS: Final = (
    "once",
    "order",
    "turns",
    "intact",
    "readers",
    "everyone",
    "nonces",
    "leases",
    "tree",
    "reach",
    "steady",
    "bounds",
    "connected",
)
_OF_A_TOPIC: Final = ("order", "turns", "intact", "readers", "everyone")
"""Checks that are made for each topic."""
_OF_ONE_TOPIC: Final = ("tree", "reach", "steady")
"""Checks that need a single topic."""
