"""The mode "tree" of a member's node: where its directory is, and its machine.

    mode = "tree"
    keyring = "alice.keyring"

    [tree]
    directory = "abc...xyz.onion:80"           # the line that the directory's operator tells everybody

    [tor]                                      # by which Tor it is reached and calls others; see `tor_table`

A node is reached at an onion service of its own, whose key comes from its keyring: so the file has no address, and the
node has the same one in every life.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.core.stream_purpose import split_stream_name
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node.mode import MachineInputs, Mode, NodeMember
from veilcast.node.toml_file import read_settings as own_table
from veilcast.tree.config import TreeConfig
from veilcast.tree.node import TreeNode
from veilcast.wire.tree import RefusalCode


class TreeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    directory: Address
    node: TreeConfig


def hindrances(node: TreeNode, now: int) -> list[str]:
    """Nodes come and go, and others take their places; there is one directory."""
    directory = node.unreachable_directory()
    found = (
        []
        if directory is None
        else [f"no way to the directory at {split_stream_name(directory)[1]}: it does not answer"]
    )
    if node.refusal is not None:
        found.append(f"the directory does not list this node: {_REFUSALS.get(node.refusal, 'it refuses us')}")
    return found


def read_settings(profile: Profile, table: dict[str, Any]) -> TreeSettings:
    """The table `tree` of a node's file: the way to the directory, and what the machine can be told."""
    directory = table.pop("directory", None)
    if directory is None:
        raise ConfigError("tree.directory: needed, and not there")
    address = Address(msgspec.convert(directory, str))
    return TreeSettings(address, own_table("tree", table, profile, TreeConfig))


def onion_peers(settings: TreeSettings) -> Mapping[str, Address]:
    return {"tree.directory": settings.directory}


def build(start: MachineInputs) -> NodeMember:
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


_REFUSALS: Final = {
    RefusalCode.FULL: "it has no room; ask its operator",
    RefusalCode.LIMITED: "it is asked too much at present; wait",
    RefusalCode.MALFORMED: "the clock is wrong (more than 10 s ahead), or the membership is over or revoked",
}

MODE: Final = Mode(read_settings, build, "onions", hindrances, needs_peers=False, onion_peers=onion_peers)
