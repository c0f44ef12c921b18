"""The plan of an overlay of brokers on one computer: virtual nodes, links, the members' edges, and spare brokers.

Every local network reads this module, because its plan may contain an overlay. So the functions import the brokers'
code, and the simulator's Byzantine brokers are imported only if a plan has some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError


class VirtualNodePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A virtual node. `byzantine` has the faults of its last replicas, one each, to show that the node tolerates
    them."""

    name: str
    replicas: int = 3
    byzantine: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", self.name):
            raise ConfigError(f"virtual node {self.name!r}: a name has small letters and digits, 32 at most")
        if self.name in (SPARE, REPOSITORY):
            raise ConfigError(f"virtual node {self.name!r}: this is what brokers are called that belong to none")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError(f"virtual node {self.name!r}: 1 to {REPLICAS_MAX} replicas on one machine")
        if len(self.byzantine) > self.replicas:
            raise ConfigError(f"virtual node {self.name!r}: it has {self.replicas} replicas, and more should lie")
        if self.byzantine:
            self._check_behaviours()

    def _check_behaviours(self) -> None:
        from veilcast.sim.brokers.adversaries import BEHAVIOURS

        for kind in self.byzantine:
            if kind not in BEHAVIOURS:
                names = ", ".join(BEHAVIOURS)
                raise ConfigError(f"virtual node {self.name!r}: byzantine is one of {names}, not {kind!r}")


class OverlayPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[VirtualNodePlan, ...]
    links: tuple[tuple[str, str], ...] = ()
    edges: tuple[str, ...] = ()
    """The edge node of each member; if empty, members are spread over all nodes."""
    spare: int = 0
    """Brokers with keys and files that do not run yet, for a plan to attach."""
    repository: int = 0
    """Replicas that carry keys out of band; with none, the brokers carry them."""

    def check(self, profile: Profile, members: int) -> None:
        from veilcast.brokers.keys.scheme import check_hardened
        from veilcast.brokers.topology import OverlayTree
        from veilcast.node.broker_overlay import check_links

        names = [node.name for node in self.nodes]
        if len(set(names)) != len(names):
            raise ConfigError("two virtual nodes have one name")
        check_links(self.links)
        tree = OverlayTree.build({node.name: node.replicas for node in self.nodes}, self.links)
        if profile == "hardened":
            tree.check_hardened()
        if not 0 <= self.spare <= REPLICAS_MAX:
            raise ConfigError(f"spare: 0 to {REPLICAS_MAX} brokers")
        if not 0 <= self.repository <= REPLICAS_MAX:
            raise ConfigError(f"repository: 0 to {REPLICAS_MAX} replicas")
        if self.repository and profile == "hardened":
            check_hardened(self.repository, "the repository")
        if self.edges and len(self.edges) != members:
            raise ConfigError("every member has one edge node")
        for edge in self.edges:
            if edge not in names:
                raise ConfigError(f"a member's edge is {edge!r}, and there is no such virtual node")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The directories of all replicas, node by node, then of the repository, then the spare ones."""
        return tuple(host for host, _, _ in self._replicas()) + self.repository_hosts + self.spare_hosts

    @property
    def repository_hosts(self) -> tuple[str, ...]:
        return tuple(f"{REPOSITORY}-{index}" for index in range(1, self.repository + 1))

    @property
    def spare_hosts(self) -> tuple[str, ...]:
        return tuple(f"{SPARE}-{index}" for index in range(1, self.spare + 1))

    def edge(self, member: int) -> str:
        return self.edges[member] if self.edges else self.nodes[member % len(self.nodes)].name

    def byzantine_kind(self, host: str) -> str | None:
        """The fault of this replica; None if it is honest."""
        for name, node, index in self._replicas():
            honest = node.replicas - len(node.byzantine)
            if name == host and index > honest:
                return node.byzantine[index - honest - 1]
        return None

    def _replicas(self) -> Iterator[tuple[str, VirtualNodePlan, int]]:
        for node in self.nodes:
            for index in range(1, node.replicas + 1):
                yield f"{node.name}-{index}", node, index


@cache
def default_overlay() -> OverlayPlan:
    """Three virtual nodes in a line, for a network whose overlay is not described."""
    nodes = (VirtualNodePlan("north"), VirtualNodePlan("centre"), VirtualNodePlan("south"))
    return OverlayPlan(nodes, (("north", "centre"), ("centre", "south")))


REPLICAS_MAX: Final = 15
SPARE: Final = "spare"
REPOSITORY: Final = "repository"
