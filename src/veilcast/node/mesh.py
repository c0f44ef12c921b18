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
    if profile == "hardened":
        given = table.get("hardening", {})
        table = {**table, "hardening": {**_HIDDEN_PUBLISHERS, **given} if isinstance(given, dict) else given}
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


_HIDDEN_PUBLISHERS: Final = {"parcel_periods": 60, "hold_back_epochs": 5.0}
"""Settings that hide a member's publications, where its file has no others. All nodes of a network need the same, so
the defaults of a node are not those of the machines, whose simulations measure one thing at a time."""


def publications_hidden(settings: MeshConfig) -> int:
    """Without parcels, insiders on a stem see when each publication leaves. With them, only its release shows that the
    publisher was present shortly before, and the longer that time may be, the less it shows (`mesh-months`)."""
    rules = settings.hardening
    if settings.profile != "hardened" or not rules.parcel_periods:
        return 0
    return PUBLICATIONS_PER_EPOCH * (1 + int(rules.hold_back_epochs))


PUBLICATIONS_PER_EPOCH: Final = 5
"""Publications, for each epoch of the time in which they are released, after which a tenth of insiders names the
publisher about 1.5 times as often as its share, in a model of 20 members of which a tenth is away in each epoch."""
ALONE_US: Final = 30_000_000
MODE: Final = Mode(
    read_settings,
    build,
    "udp",
    hindrances,
    neighbours_are_members=True,
    publications_hidden=publications_hidden,
    cover_profiles=("hardened",),
)
