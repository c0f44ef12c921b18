"""The settings of a member's node in the mode "mesh", and its machine."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.link.address_groups import ip_prefix
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.node.modes import MachineInputs, Mode, NodeMember


def read_settings(profile: Profile, table: dict[str, Any]) -> msgspec.Struct:
    if "profile" in table:
        raise ConfigError("mesh.profile: the profile is named once, at the top of the file")
    return msgspec.convert({"membership": "certified", **table, "profile": profile}, MeshConfig)


def build(start: MachineInputs) -> NodeMember:
    node = MeshNode(
        start.settings,
        start.keyring,
        start.rng,
        start.entropy,
        start.peers,
        start.now,
        start.address,
        ip_prefix,
        start.records,
    )
    epoch = epoch_of(start.now, start.keyring.epoch_us)
    for name, keys in start.keyring.keys_at(epoch).topics.items():
        if keys.role == "publisher":
            node.advertise(name, start.now)
    return node


def hindrances(node: MeshNode, now: int) -> list[str]:
    """A node finds its neighbours within seconds if any peer of its file is up."""
    if (alone_us := node.alone_us(now)) < ALONE_US:
        return []
    return [
        f"no neighbour has been there for {alone_us / 1e6:.0f} s: no peer of this node's file answers; what you publish"
        " waits in the outbox"
    ]


ALONE_US: Final = 30_000_000
MODE: Final = Mode(read_settings, build, "udp", hindrances, neighbours_are_members=True, cover_profiles=("hardened",))
