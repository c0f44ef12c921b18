"""The table of modes: what a node can be, by name.

A mode is a type of settings, a factory of its machine, and the name of the driver that carries its frames. Nothing else
of a node knows which one it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.record import Profile
from veilcast.authority.revoked import Revoked
from veilcast.authority.standing import Standing
from veilcast.brokers.client import Client as BrokersClient
from veilcast.brokers.paths import Paths
from veilcast.errors import ConfigError
from veilcast.foil.member import FoilMember
from veilcast.link.prefixes import of_ip
from veilcast.machine import Address, Durable, Entropy, Member, Peers
from veilcast.mesh.config import Config
from veilcast.mesh.node import MeshNode
from veilcast.node import broker_member, foil_member, relay_member, tree_member
from veilcast.node.broker_member import BrokersSettings
from veilcast.node.foil_member import FoilSettings
from veilcast.node.relay_member import RelaySettings
from veilcast.node.tree_member import TreeSettings
from veilcast.relay.client import Client
from veilcast.tree.node import TreeNode


class Resident(Member, Peers, Durable, Protocol):
    """The machine of a member whose driver has links and a disk."""


class LiveMember(Resident, Protocol):
    """One that can also tell its owner how it is."""

    def group_size(self) -> int:
        """Among how many members this one is, itself included, as far as it knows."""

    def swaps_played(self) -> int:
        """Places that it has changed with others; 0 where a mode knows no places."""


class Start(NamedTuple):
    """All that a machine is built from. `records` is what its earlier lives had stored and did not settle."""

    settings: Any
    """Of the mode's own type."""
    keyring: Keyring
    rng: Random
    entropy: Entropy
    address: Address
    peers: Sequence[Address]
    records: Mapping[int, bytes]
    now: int
    revoked: Revoked | None = None
    """Keys that bulletins have voided, for modes whose members judge statements of others themselves."""


class Mode(NamedTuple):
    settings: Callable[[Profile, dict[str, Any]], msgspec.Struct]
    """Reads the mode's own table of the file; what it does not say has the defaults of a live node."""
    build: Callable[[Start], LiveMember]
    driver: Literal["udp", "streams", "onions", "mqtt"]
    hindrances: Callable[[Any], Sequence[str]] = lambda member: ()
    """What keeps a member's machine of this mode from doing what it was asked for, in words for its owner."""
    needs_peers: bool = True
    """Whether a member is hindered by every peer that it cannot reach."""
    paths: tuple[str, ...] = ()
    """Those of its settings that are paths."""
    hosts: tuple[Standing, ...] = ()
    """On TLS streams: in which roles those stand whom it calls."""
    keep: Callable[[Any, Any], Callable[[], None]] | None = None
    """Of settings and a member's machine: what brings the files that it began from up to date, now and then."""


def mode_of(name: str) -> Mode:
    mode = MODES.get(name)
    if mode is None:
        raise ConfigError(f"mode: there is no mode {name!r}, only {', '.join(MODES)}")
    return mode


def _mesh_settings(profile: Profile, table: dict[str, Any]) -> msgspec.Struct:
    if "profile" in table:
        raise ConfigError("mesh.profile: the profile is named once, at the top of the file")
    return msgspec.convert({"membership": "certified", **table, "profile": profile}, Config)


def _mesh(start: Start) -> LiveMember:
    node = MeshNode(
        start.settings,
        start.keyring,
        start.rng,
        start.entropy,
        start.peers,
        start.now,
        start.address,
        of_ip,
        start.records,
    )
    epoch = epoch_of(start.now, start.keyring.epoch_us)
    for name, keys in start.keyring.at(epoch).topics.items():
        if keys.role == "publisher":
            node.advertise(name, start.now)
    return node


def _relay(start: Start) -> LiveMember:
    way: RelaySettings = start.settings
    return Client(
        way.client, start.keyring, way.public, way.proxies, start.rng, start.entropy, start.now, start.records
    )


def _tree(start: Start) -> LiveMember:
    tree: TreeSettings = start.settings
    return TreeNode(
        tree.node,
        start.keyring,
        tree.directory,
        start.address,
        start.rng,
        start.entropy,
        start.now,
        start.records,
        start.revoked,
    )


def _foil(start: Start) -> LiveMember:
    foil: FoilSettings = start.settings
    return FoilMember(
        foil.member,
        start.keyring,
        foil.broker,
        start.rng,
        start.entropy,
        start.now,
        start.records,
        foil_member.read_login(foil.login),
    )


def _brokers(start: Start) -> LiveMember:
    brokers: BrokersSettings = start.settings
    clients = [
        BrokersClient(
            brokers.client,
            start.keyring,
            overlay,
            way.operator,
            way.edge,
            start.address,
            start.rng,
            start.entropy,
            start.now,
            start.records,
        )
        for way, overlay in zip(brokers.ways, broker_member.read_overlays(brokers), strict=True)
    ]
    return clients[0] if len(clients) == 1 else Paths(clients, start.records, brokers.client.seen_max, start.now)


MODES: Final = {
    "mesh": Mode(_mesh_settings, _mesh, "udp"),
    "relay": Mode(relay_member.read_settings, _relay, "streams", relay_member.hindrances, hosts=("proxy",)),
    "tree": Mode(tree_member.read_settings, _tree, "onions", tree_member.hindrances, needs_peers=False),
    "foil": Mode(foil_member.read_settings, _foil, "mqtt", foil_member.hindrances, paths=foil_member.PATHS),
    "brokers": Mode(
        broker_member.read_settings,
        _brokers,
        "streams",
        broker_member.hindrances,
        needs_peers=False,
        paths=broker_member.PATHS,
        hosts=("broker",),
        keep=broker_member.keep,
    ),
}
