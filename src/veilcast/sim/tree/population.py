"""The tree's population: its directories, and nodes that forward for one another. Some publish, some subscribe.

All streams go through the anonymous network (`AnonymousLinkEngine`). Faults hit these streams or the machines at their
ends. Hoarders are nodes that keep publications which they should forward.

A publication made at `owed_us` or later must arrive once it is on its publisher's disk. An earlier one may be lost with
a node that dies while it holds it.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.population import SubscriberPopulation
from veilcast.sim.rng import derive_rng
from veilcast.sim.tree.adversaries import HoardingNode
from veilcast.sim.tree.checkers import NoMultiplication
from veilcast.sim.workload import LogsStoredPublications, SubscriberWorkload
from veilcast.sim.world import World
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.tree.directory import Directory
from veilcast.tree.node import TreeNode


class TreePopulation(SubscriberPopulation, frozen=True, tag="tree"):
    """The first `publishers` nodes publish, the last `subscribers` subscribe; the two may overlap."""

    mode: ClassVar[str] = "tree"
    known_checks: ClassVar[tuple[str, ...]] = ("once", "intact", "matching", "complete", "frugal", "bounds")
    positive: ClassVar[tuple[str, ...]] = ("nodes", "subscribers", "directories")
    not_negative: ClassVar[tuple[str, ...]] = ("hoarders", "keep_ppm", "subscribe_us")

    nodes: int = 12
    subscribers: int = 3
    directories: int = 1
    hoarders: int = 0
    """Number of hoarders among the nodes that neither publish nor subscribe."""
    keep_ppm: int = 1_000_000
    """Share of the publications that a hoarder keeps, in parts per million."""
    interests: int = 1
    subscribe_us: int = 0
    """When subscriptions begin. A node that starts later subscribes at once."""
    first_us: int = 40_000_000
    tree: TreeConfig = TreeConfig(
        fetch_us=10_000_000, connect_us=1_000_000, retry_us=5_000_000, spread_us=2_000_000, ahead_us=5_000_000
    )
    directory: DirectoryConfig = DirectoryConfig(lease_us=60_000_000, publish_us=2_000_000, round_us=8_000_000)
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "bounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.publishers, self.subscribers) > self.nodes:
            raise ConfigError("population.publishers and subscribers must not be more than its nodes")
        if self.hoarders and self.hoarders + self.publishers + self.subscribers > self.nodes:
            raise ConfigError("population.hoarders must be nodes that neither publish nor subscribe")
        if "frugal" in self.checks and self.tree.profile == "paper":
            raise ConfigError('population.checks: "frugal" is for the hardened profile')

    def addresses(self) -> tuple[Address, ...]:
        return (*self.directory_names(), *self.node_names())

    def directory_names(self) -> tuple[Address, ...]:
        return (DIRECTORY, *(Address(f"{DIRECTORY}-{number}") for number in range(2, self.directories + 1)))

    def node_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"n{number}") for number in range(self.nodes))

    def publisher_names(self) -> tuple[Address, ...]:
        return self.node_names()[: self.publishers]

    def subscriber_names(self) -> tuple[Address, ...]:
        return self.node_names()[-self.subscribers :]

    def hoarder_names(self) -> tuple[Address, ...]:
        return self.node_names()[self.publishers : self.publishers + self.hoarders]

    def keyring(self, node: Address, epoch_us: int) -> Keyring:
        """The keyring that this node starts with."""
        return self._node_keyring(self.node_names().index(node), "member", epoch_us)

    def populate(self, world: World, duration_us: int) -> None:
        workload = self._make_workload(world, duration_us)
        special = {"frugal": lambda: NoMultiplication(sum(map(len, workload.subscriptions.values())))}
        workload.watch(self.checks, self._bounds, special)
        for place, name in enumerate(self.directory_names()):
            world.add(name, self._directory_factory(place, world.epoch_us))
        for number, node in enumerate(self.node_names()):
            keyring = self._node_keyring(number, "member", world.epoch_us)
            workload.add_member(node, self._node_factory(world, keyring, workload))
        self._schedule_publications(workload)

    def facts(self, world: World) -> dict[str, int]:
        """Listed nodes, entries of all routing tables, and messages that were dropped, refused or in excess."""
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
    def _profile(self) -> Profile:
        return self.tree.profile

    def _node_keyring(self, number: int, tls_role: TlsRole, epoch_us: int) -> Keyring:
        """A node that publishes and subscribes has a publisher's grant, which lets it subscribe, too."""
        role, names = "", self.node_names()
        if tls_role == "member" and names[number] in self.publisher_names():
            role = "publisher"
        elif tls_role == "member" and names[number] in self.subscriber_names():
            role = "subscriber"
        return self._keyring_for_role(number, role, epoch_us, tls_role)

    def _directory_factory(self, place: int, epoch_us: int) -> MachineFactory:
        keyring = self._node_keyring(self.nodes + place, "directory", epoch_us)
        names = self.directory_names()
        config = msgspec.structs.replace(self.directory, others=(*names[:place], *names[place + 1 :]))
        return lambda birth: Directory(config, keyring, birth.rng, birth.now, birth.stored)

    def _node_factory(self, world: World, keyring: Keyring, workload: SubscriberWorkload) -> MachineFactory:
        def start(birth: Birth) -> TreeNode | HoardingNode:
            name = birth.address
            node = _LoggedTreeNode(
                self.tree, keyring, self.directory_names(), name, birth.rng, birth.entropy, birth.now, birth.stored
            )
            self._subscribe(world, node, birth, workload)
            if name not in self.hoarder_names():
                return node
            return HoardingNode(node, derive_rng(birth.seed, "hoarder", name, str(birth.incarnation)), self.keep_ppm)

        return start

    def _subscribe(self, world: World, node: _LoggedTreeNode, birth: Birth, workload: SubscriberWorkload) -> None:
        """Subscribe at once, or at `subscribe_us` if the first incarnation starts before that."""
        node.publication_log = workload.log
        interests, wait_us = workload.subscriptions_of(birth.address), world.start + self.subscribe_us - world.now

        def subscribe(node: TreeNode, now: int) -> None:
            for interest in interests:
                node.subscribe(interest, now)

        if wait_us <= 0:
            subscribe(node, birth.now)
        elif not birth.incarnation and interests:
            world.after(wait_us, lambda: world.call(birth.address, subscribe))

    def _bounds(self, machine: TreeNode | Directory) -> dict[str, int]:
        if isinstance(machine, Directory):
            directory = self.directory
            return {
                "nodes": directory.nodes_max,
                "editions": directory.versions,
                "callers": directory.callers_max,
                "streams": self.directories - 1,
            }
        tree = self.tree
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
            "parcels": trees * (self.nodes + tree.chain),
            "probes": tree.probes_max,
            "inbox": tree.unread_max,
            "delivered": tree.delivered_max,
            "pending": tree.records_max,
        }


class _LoggedTreeNode(LogsStoredPublications, TreeNode):
    pass


DIRECTORY: Final = Address("directory")
