"""The mesh's population: mesh nodes, a publisher or some, and a share of subscribers.

Their neighbourhood is a small world that is laid out for them; or, where `mesh.membership` is "scamp", the one that
they find for themselves, joining one after the other by the first few of them; so too where it is "certified".

The keys are those of one authority that lives in memory and is made once for each process; nodes of one role share a
keyring, since what is a member's own in it is the link key, and there are no links here. Only certified neighbours
prove who they are, and have memberships of their own. A node's owner is as plain as
can be: a subscriber subscribes whenever its node starts, the publisher advertises, and what is delivered is
acknowledged at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from veilcast.authority import issuer
from veilcast.authority.epoch import BATCH_MAX, HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError
from veilcast.machine import Address, Delivered, Event, Machine, Note, Publication
from veilcast.mesh.certified import TRIES_MAX, read_anchors
from veilcast.mesh.config import Config
from veilcast.mesh.links import OF_NEIGHBOURHOOD
from veilcast.mesh.node import MeshNode
from veilcast.mesh.scamp import FAILED_MAX
from veilcast.mesh.slots import VISITS_MAX
from veilcast.sim.adversaries import innermost
from veilcast.sim.chance import SeededEntropy, derive, generator
from veilcast.sim.checkers import AtMostOnce, Bounded, Checker, Connected, Everyone, InOrder, Intact, OnlyReaders
from veilcast.sim.engine import START_US
from veilcast.sim.graphs import check_small_world, connected, watts_strogatz
from veilcast.sim.host import Birth
from veilcast.sim.mesh_adversaries import Forger
from veilcast.sim.mesh_checkers import InTurn, Leases, Nonces, Reach, Sent, Steady, Tree, node_at
from veilcast.sim.mesh_keys import hardened_keyring
from veilcast.sim.world import World
from veilcast.topics import Label


class MeshPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="mesh"):
    """Mesh nodes; `notes` are published, one every `every_us` from `first_us` on, by the publishers in turn."""

    nodes: int = 20
    neighbours: int = 4
    rewire: float = 0.2
    subscribers: float = 0.3
    """The share of nodes that subscribe, of all but the publisher."""
    notes: int = 10
    first_us: int = 20_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes that are published from this time on must reach every subscriber: after the faults, and some for repair."""
    mesh: Config = Config(neighbours_max=20, address_bytes_max=8)
    """What the nodes are told; the heartbeat is as small as short addresses allow."""
    checks: tuple[str, ...] = ("once", "order", "intact", "readers", "bounds", "everyone")
    cover_share: float = 0.78
    """Kappa of the topic, where the profile is "hardened": the share of other nodes that act as subscribers."""
    contacts: int = 3
    """By how many of the first nodes the others join, where they join by themselves."""
    join_us: int = 500_000
    """Between the starts of two nodes, where they join by themselves."""
    forgers: int = 0
    """How many of the others know the topic's key and forge adverts and notes; see `mesh_adversaries`."""
    publishers: int = 1
    prefixes: int = 0
    """Over how many prefixes the addresses are spread; 0 is one for each."""

    def __post_init__(self) -> None:
        check_small_world(self.nodes, self.neighbours, self.rewire)
        if not 0 <= self.cover_share <= 1:
            raise ConfigError("population.cover_share must be a share between 0 and 1")
        if not 0 < self.subscribers <= 1:
            raise ConfigError("population.subscribers must be a share between 0 and 1")
        for name in ("notes", "first_us", "owed_us", "forgers", "prefixes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        for name in ("every_us", "contacts", "join_us", "publishers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        if self.mesh.profile == "hardened" and any(check in self.checks for check in ("tree", "reach")):
            raise ConfigError('population.checks: "tree" and "reach" are for the paper\'s profile')
        if self.publishers + self._readers + self.forgers > self.nodes:
            raise ConfigError("population.nodes must be enough for its publishers, subscribers and forgers")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")

    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{i % self.prefixes}.{i}" if self.prefixes else f"n{i}") for i in range(self.nodes))

    def roles(self, seed: int) -> tuple[Address, tuple[Address, ...]]:
        """The (first) publisher and the subscribers under this seed."""
        publisher, *readers = generator(seed, "roles").sample(self.addresses(), self._readers + 1)
        return publisher, tuple(readers)

    def _cast(self, seed: int) -> dict[Address, str]:
        """Who is more than a forwarder, and what; the first publisher comes first."""
        publisher, readers = self.roles(seed)
        cast = {publisher: "publisher"} | dict.fromkeys(readers, "subscriber")
        others = [address for address in self.addresses() if address not in cast]
        more = self.publishers - 1
        return cast | dict.fromkeys(others[:more], "publisher") | dict.fromkeys(others[more:][: self.forgers], "forger")

    def settle(self, world: World, duration_us: int) -> None:
        addresses, cast, graph = self.addresses(), self._cast(world.seed), self._graph(world.seed)
        publishers = [address for address, role in cast.items() if role == "publisher"]
        readers = [address for address, role in cast.items() if role == "subscriber"]
        ledger = _Ledger()
        for check in self.checks:
            world.watch(self._checker(check, ledger, publishers, readers))
        world.watch(_Clients())
        known: dict[Address, list[Address]] = {address: [] for address in addresses}
        for u, v in graph:
            known[u].append(v)
            known[v].append(u)
        for number, address in enumerate(addresses):
            role = cast.get(address, "forwarder")
            keyring = self._keyring(role, number, world.epoch_us)
            if self._joining:
                owner = _Owner(self.mesh, keyring, role, addresses[: self.contacts], earlier=number)
                world.add(address, owner.start, number * self.join_us)
            else:
                world.add(address, _Owner(self.mesh, keyring, role, known[address]).start)
            if role in ("publisher", "subscriber"):
                world.label(TOPIC, address, role, world.start, world.start + duration_us)
        for u, v in graph:
            world.connect(u, v)
        for number in range(self.notes):
            self._plan_note(world, publishers[number % len(publishers)], number, ledger)

    def facts(self, world: World) -> dict[str, int]:
        """What came of it: the size of the mesh, and the messages by kind that those who live have sent."""
        sent: Counter[str] = Counter()
        swaps = 0
        for address in self.addresses():
            if (machine := node_at(world, address)) is not None:
                sent.update(machine.sent)
                swaps += machine.overlay.policy.played()
        return {"mesh": len(self.members(world)), "swaps": swaps, **dict(sorted(sent.items()))}

    def members(self, world: World) -> list[Address]:
        """The nodes of the mesh, V_a: the publisher, and whoever has somebody next to it there."""
        token = self.token(world)
        present = [(address, node_at(world, address)) for address in self.addresses()]
        return [
            address
            for address, machine in present
            if machine is not None and (machine.overlay.originates(token) or token in machine.overlay.branches.tokens())
        ]

    def token(self, world: World) -> bytes:
        """What the topic is called now."""
        if self.mesh.profile == "paper":
            return token_of_topic()
        keyring = hardened_keyring(TOPIC, self.cover_share, world.epoch_us, "subscriber", 0)
        return keyring.at(epoch_of(world.now, world.epoch_us)).topic(TOPIC).token

    def _keyring(self, role: str, number: int, epoch_us: int) -> Keyring:
        """Roles share a keyring, but where nodes show who they are every one is a member of its own."""
        if self.mesh.profile == "paper":
            certified = self.mesh.membership == "certified"
            return own_keyring(role, self.addresses()[number]) if certified else keyrings()[role]
        granted = "subscriber" if role == "forger" else role
        return hardened_keyring(TOPIC, self.cover_share, epoch_us, granted, number)

    @property
    def _readers(self) -> int:
        return min(max(1, round(self.subscribers * self.nodes)), self.nodes - 1)

    @property
    def _joining(self) -> bool:
        return self.mesh.membership != "fixed"

    def _graph(self, seed: int) -> list[tuple[Address, Address]]:
        """Who is laid out to be whose neighbour: nobody, where they find one another."""
        if self._joining:
            return []
        graph = watts_strogatz(self.nodes, self.neighbours, self.rewire, generator(seed, "graph"))
        if not connected(self.nodes, graph):
            raise ConfigError(f"the neighbourhood of seed {seed} falls apart; more neighbours or another seed")
        addresses = self.addresses()
        return [(addresses[u], addresses[v]) for u, v in graph]

    def _plan_note(self, world: World, publisher: Address, number: int, ledger: _Ledger) -> None:
        body = b"note %d" % number
        publication = Publication((Label(TOPIC).pair,), body)
        at_us = self.first_us + number * self.every_us

        def publish(machine: MeshNode, now: int) -> None:
            ledger.sent[body] = publication
            ledger.turns[body] = Sent((publisher, world.incarnation(publisher)), number // self.publishers, world.now)
            if at_us >= self.owed_us:
                ledger.owed[body] = None
            machine.publish(publication, now)

        world.after(at_us, lambda: world.call(publisher, publish))

    def _checker(self, check: str, ledger: _Ledger, publishers: list[Address], readers: list[Address]) -> Checker:
        match check:
            case "once":
                return AtMostOnce()
            case "order":
                return InOrder(lambda note: int(note.publication.body.split()[1]))
            case "intact":
                return Intact(ledger.sent, _body)
            case "turns":
                return InTurn(ledger.turns, self.mesh.gap_us)
            case "nonces":
                return Nonces()
            case "readers":
                return OnlyReaders(readers)
            case "everyone":
                return Everyone(ledger.owed, readers, _body)
            case "connected":
                return Connected(self.addresses(), lambda machine: innermost(machine).overlay.present())
            case "leases":
                period_us = self.mesh.heartbeat_us
                return Leases(self.mesh.shellgame.lease_periods * period_us, period_us)
            case "tree":
                return Tree(token_of_topic())
            case "reach":
                return Reach(token_of_topic(), publishers, readers)
            case "steady":
                return Steady(token_of_topic(), publishers, readers, self.owed_us)
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
            "pending": mesh.hardening.pending_max,
            "held": mesh.hardening.pending_max,
            "neighbours": mesh.neighbours_max,
            "passive": mesh.certified.book_max if mesh.membership == "certified" else mesh.scamp.passive_max,
            "failed": FAILED_MAX,
            "tries": TRIES_MAX + 1,
            "prefixes": VISITS_MAX,
        }
        return sum(max(0, size - bounds[table]) for table, size in machine.sizes().items())


class _Ledger:
    """What the publishers sent: each note, its place in the order, and those that everybody must get."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Publication] = {}
        self.turns: dict[bytes, Sent] = {}
        self.owed: dict[bytes, None] = {}


class _Owner:
    """Starts a node, and does at every start what its role asks for.

    At its first start a node knows the contacts `earlier` than itself only: two that wait for each other, each with
    newcomers of its own, would be two networks.
    """

    def __init__(
        self,
        config: Config,
        keyring: Keyring,
        role: str,
        neighbours: Sequence[Address],
        earlier: int | None = None,
    ) -> None:
        self._config, self._keyring, self._role = config, keyring, role
        self._neighbours, self._earlier = neighbours, earlier

    def start(self, birth: Birth) -> Machine:
        known = self._neighbours[: None if birth.incarnation else self._earlier]
        anchors = read_anchors(birth.stored[OF_NEIGHBOURHOOD]) if OF_NEIGHBOURHOOD in birth.stored else ()
        node = MeshNode(
            self._config, self._keyring, birth.rng, birth.entropy, known, birth.now, birth.address, prefix_of, anchors
        )
        if self._role == "publisher":
            node.advertise(TOPIC, birth.now)
        elif self._role == "subscriber":
            node.subscribe(Label(TOPIC), birth.now)
        elif self._role == "forger":
            epoch = epoch_of(birth.now, self._keyring.epoch_us)
            forged = Publication((Label(TOPIC).pair,), b"note of a forger")
            return Forger(node, self._keyring.at(epoch).topic(TOPIC), epoch, forged, birth.entropy)
        return node


class _Clients(Checker):
    """Nothing to check: the clients of all nodes, who acknowledge what they get."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            note = event.note.id
            world.call(address, lambda machine, now: machine.acknowledge(note, now))


def prefix_of(address: Address) -> str:
    """What stands before the dot of an address, or all of it."""
    return address.partition(".")[0]


def keyrings() -> dict[str, Keyring]:
    """One keyring for each role. A forwarder's is a membership and nothing else."""
    return _issued()[1]


@cache
def own_keyring(role: str, member: str) -> Keyring:
    """A keyring for this role, with a membership of one's own."""
    entropy, epoch = SeededEntropy(derive(0, "member", member)), epoch_of(START_US, HOUR_US)
    _, own = issuer.grant_ready(_issued()[0], member, [], epoch, BATCH_MAX, entropy)
    return msgspec.structs.replace(keyrings()[role], membership=own.membership)


@cache
def _issued() -> tuple[issuer.Authority, dict[str, Keyring]]:
    entropy = SeededEntropy(derive(0, "authority"))
    state = issuer.declare_label(issuer.create(HOUR_US, entropy), TOPIC, "paper", entropy)
    epoch, rings = epoch_of(START_US, HOUR_US), {}
    for role, wanted in _GRANTS.items():
        state, rings[role] = issuer.grant_ready(state, role, wanted, epoch, BATCH_MAX, entropy)
    return state, rings


@cache
def token_of_topic() -> bytes:
    return keyrings()["subscriber"].at(epoch_of(START_US, HOUR_US)).topic(TOPIC).token


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
