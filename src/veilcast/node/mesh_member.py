"""The mode "mesh" of a member's node: its settings, and its machine."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.record import Profile
from veilcast.errors import ConfigError
from veilcast.link.prefixes import of_ip
from veilcast.mesh.config import Config
from veilcast.mesh.node import MeshNode
from veilcast.node.mode import LiveMember, Mode, Start


def read_settings(profile: Profile, table: dict[str, Any]) -> msgspec.Struct:
    if "profile" in table:
        raise ConfigError("mesh.profile: the profile is named once, at the top of the file")
    return msgspec.convert({"membership": "certified", **table, "profile": profile}, Config)


def build(start: Start) -> LiveMember:
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


def hindrances(node: MeshNode, now: int) -> list[str]:
    """A node finds its neighbours within seconds, if any of the peers in its file is up."""
    if (alone_us := node.alone_us(now)) < ALONE_US:
        return []
    return [
        f"no neighbour has been there for {alone_us / 1e6:.0f} s: no peer of this node's file answers; what you publish"
        " waits in the outbox"
    ]


ALONE_US: Final = 30_000_000
MODE: Final = Mode(read_settings, build, "udp", hindrances)
