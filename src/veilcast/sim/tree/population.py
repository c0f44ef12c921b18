"""The tree's population: a directory, and nodes that forward for one another; some publish, some subscribe.

All machines are the real ones, with the real cryptography. All streams go through the anonymous network (`hidden`), and
whatever fails, fails on these or to the machines at their ends. An owner subscribes whenever its node starts, and
acknowledges at once what is delivered. Hoarders are nodes that keep what they should pass on.

A publication is owed, if it was made late enough, as soon as it is on its publisher's disk. What was made before that
may be lost with a node that dies with it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.checkers import PublicationLog, make_subscriber_checker
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.owners import AcknowledgingClients
from veilcast.sim.rng import derive_rng
from veilcast.sim.tree.adversaries import HoardingNode
from veilcast.sim.tree.checkers import NoMultiplication
from veilcast.sim.workload import LogsStoredPublications, TopicVocabulary, schedule_publications
from veilcast.sim.world import World
from veilcast.topics import Conjunction, Equal
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.tree.directory import Directory
from veilcast.tree.node import TreeNode


class TreePopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="tree"):
    """One directory; `notes` are published, one every `every_us` from `first_us` on, by the publishers in turn."""

    nodes: int = 12
    publishers: int = 2
    """How many of the nodes publish: the first."""
    subscribers: int = 3
    """How many subscribe: the last; some do both where there are not enough."""
    hoarders: int = 0
    """How many of those between keep what they should pass on."""
    keep_ppm: int = 1_000_000
    """How much of it they keep."""
    topics: int = 2
    interests: int = 1
    """Of each subscriber."""
    bits: int = 4
    """Of the number that topics have: it counts to 2^bits; with none, all want all of a topic."""
    subscribe_us: int = 0
    """When subscriptions begin; a node that starts later subscribes at once."""
    notes: int = 20
    first_us: int = 40_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes that are published from this time on must reach everybody who wants them."""
    tree: TreeConfig = TreeConfig(
        fetch_us=10_000_000, connect_us=1_000_000, retry_us=5_000_000, spread_us=2_000_000, ahead_us=5_000_000
    )
    directory: DirectoryConfig = DirectoryConfig(lease_us=60_000_000, publish_us=2_000_000)
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "bounds")

    def __post_init__(self) -> None:
        for name in ("nodes", "publishers", "subscribers", "topics", "interests", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("hoarders", "keep_ppm", "bits", "subscribe_us", "notes", "first_us", "owed_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        if max(self.publishers, self.subscribers) > self.nodes:
            raise ConfigError("population.publishers and subscribers must not be more than its nodes")
        if self.hoarders and self.hoarders + self.publishers + self.subscribers > self.nodes:
            raise ConfigError("population.hoarders must be nodes that neither publish nor subscribe")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")
        if "frugal" in self.checks and self.tree.profile == "paper":
            raise ConfigError('population.checks: "frugal" is for the hardened profile')

    def addresses(self) -> tuple[Address, ...]:
        return (DIRECTORY, *self.node_names())

    def node_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{number}") for number in range(self.nodes))

    def publisher_names(self) -> tuple[Address, ...]:
        return self.node_names()[: self.publishers]

    def subscriber_names(self) -> tuple[Address, ...]:
        return self.node_names()[-self.subscribers :]

    def hoarder_names(self) -> tuple[Address, ...]:
        return self.node_names()[self.publishers : self.publishers + self.hoarders]

    def draw_subscriptions(self, seed: int) -> dict[Address, tuple[Conjunction, ...]]:
        """What each subscriber wants under this seed, each of it once."""
        return self._vocabulary.draw_subscriptions(seed, self.subscriber_names(), self.interests)

    def keyring(self, node: Address, epoch_us: int) -> Keyring:
        """What this node starts with."""
        return self._keyring(self.node_names().index(node), "member", epoch_us)

    def populate(self, world: World, duration_us: int) -> None:
        wishes, diary = self.draw_subscriptions(world.seed), PublicationLog()
        others = {"frugal": lambda: NoMultiplication(sum(map(len, wishes.values())))}
        for check in self.checks:
            world.watch(make_subscriber_checker(check, diary, wishes, lambda machine: _bounds(self, machine), others))
        world.watch(AcknowledgingClients())
        world.add(DIRECTORY, self._lister(world.epoch_us))
        for number, node in enumerate(self.node_names()):
            keyring = self._keyring(number, "member", world.epoch_us)
            world.add(node, self._owner(world, node, keyring, wishes.get(node, ()), diary))
            for interest in wishes.get(node, ()):
                topic = next(each.text for each in interest.constraints if isinstance(each, Equal))
                world.label(topic, node, "subscriber", world.start, world.start + duration_us)
        schedule_publications(
            world,
            self.publisher_names(),
            self._vocabulary,
            self.notes,
            lambda number: self.first_us + number * self.every_us,
            self.owed_us,
            diary,
        )

    def facts(self, world: World) -> dict[str, int]:
        """What came of it: who is listed, what stands in all routing tables, what was lost, refused or unwanted."""
        directory: Directory | None = world.machine(DIRECTORY)
        nodes = [node for name in self.node_names() if (node := world.machine(name)) is not None]
        nodes = [node.inner if isinstance(node, HoardingNode) else node for node in nodes]
        return {
            "listed": 0 if directory is None else directory.sizes()["nodes"],
            "entries": sum(node.sizes()["entries"] for node in nodes),
            "dropped": sum(node.dropped for node in nodes),
            "excess": sum(node.excess for node in nodes),
            "refused": sum(node.refused.total() for node in nodes),
        }

    @property
    def _vocabulary(self) -> TopicVocabulary:
        return TopicVocabulary(tuple(f"tree/{number}" for number in range(self.topics)), self.bits)

    def _keyring(self, number: int, standing: TlsRole, epoch_us: int) -> Keyring:
        """Publishers are numbered before subscribers, and those who do both publish: a grant for that reads, too."""
        names, words, profile = self.node_names(), self._vocabulary, self.tree.profile
        role, length_us = "", epoch_us if profile == "hardened" else HOUR_US
        if standing == "member" and names[number] in self.publisher_names():
            role = "publisher"
        elif standing == "member" and names[number] in self.subscriber_names():
            role = "subscriber"
        wanted = tuple((topic, role) for topic in words.topics) if role else ()
        return make_keyring(words.topic_records(profile), length_us, wanted, number, standing)

    def _lister(self, epoch_us: int) -> Any:
        keyring = self._keyring(self.nodes, "directory", epoch_us)
        return lambda birth: Directory(self.directory, keyring, birth.now, birth.stored)

    def _owner(
        self, world: World, name: Address, keyring: Keyring, wishes: tuple[Conjunction, ...], diary: PublicationLog
    ) -> Any:
        def subscribe(node: TreeNode, now: int) -> None:
            for interest in wishes:
                node.subscribe(interest, now)

        def start(birth: Birth) -> TreeNode | HoardingNode:
            node = _LoggedTreeNode(
                self.tree, keyring, DIRECTORY, name, birth.rng, birth.entropy, birth.now, birth.stored
            )
            node.diary = diary
            wait_us = world.start + self.subscribe_us - world.now
            if wait_us <= 0:
                subscribe(node, birth.now)
            elif not birth.incarnation and wishes:
                world.after(wait_us, lambda: world.call(name, subscribe))
            if name not in self.hoarder_names():
                return node
            return HoardingNode(node, derive_rng(birth.seed, "hoarder", name, str(birth.incarnation)), self.keep_ppm)

        return start


class _LoggedTreeNode(LogsStoredPublications, TreeNode):
    """A node that writes down what it has promised to send."""


def _bounds(population: TreePopulation, machine: TreeNode | Directory) -> dict[str, int]:
    if isinstance(machine, Directory):
        directory = population.directory
        return {
            "nodes": directory.nodes_max,
            "editions": directory.versions,
            "callers": directory.callers_max,
        }
    tree = population.tree
    trees = 3 * tree.subscriptions_max
    return {
        "streams": tree.streams_max,
        "callers": tree.callers_max,
        "listed": tree.listed_max,
        "entries": tree.entries_max,
        "seen": tree.seen_max,
        "held": tree.holds_max,
        "held each": tree.holds_each,
        "subscriptions": tree.subscriptions_max,
        "parcels": trees * (population.nodes + tree.chain),
        "probes": tree.probes_max,
        "inbox": tree.unread_max,
        "delivered": tree.delivered_max,
        "pending": tree.records_max,
    }


DIRECTORY: Final = Address("directory")
_CHECKS: Final = ("once", "intact", "matching", "complete", "frugal", "bounds")
