"""A tree's settings and files: of a member's node, and of its directory.

The file of a member's node:

    mode = "tree"
    keyring = "alice.keyring"

    [tree]
    directory = "abc...xyz.onion:80"           # the line that the directory's operator publishes; a list of several

    [tor]                                      # the Tor by which the node is reached and calls others; see `tor_table`

A node is reached at an onion service of its own, whose key is derived from its keyring: so the file has no address, and
the node has the same one in every run.

The file of the directory, `directory.toml`:

    keyring = "directory.keys"                 # a membership for a directory

    [tor]                                      # the Tor by which it is reached; see `tor_table`

    [tree]                                     # the settings of its machine: `tree/config.py` explains each key
    others = ["def...uvw.onion:80"]            # the other directories of this tree, if there are any
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node import toml_file
from veilcast.node.modes import MachineInputs, Mode, NodeMember
from veilcast.node.toml_file import ProcessConfig, read_own_table, settings_converter
from veilcast.node.tor_table import TOR_PATHS, TorTable
from veilcast.tree.config import DirectoryConfig, TreeConfig, check_directories

if TYPE_CHECKING:
    from veilcast.tree.node import TreeNode


class TreeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    directories: tuple[Address, ...]
    node: TreeConfig


def hindrances(node: TreeNode, now: int) -> list[str]:
    """Other nodes come and go and replace one another, so only directories can hinder a node."""
    found = [f"no way to the directory at {each}: it does not answer" for each in node.silent_directories()]
    if node.refusal is not None:
        found.append(f"the directory does not list this node: {_REFUSALS.get(node.refusal.name, 'it refuses us')}")
    return found


def read_settings(profile: Profile, table: dict[str, Any]) -> TreeSettings:
    """Read the table `tree` of a node's file: the directory, and the settings of the machine."""
    given = table.pop("directory", None)
    if given is None or given == []:
        raise ConfigError("tree.directory: needed, and not there")
    try:
        addresses = (given,) if isinstance(given, str) else msgspec.convert(given, tuple[str, ...])
    except msgspec.ValidationError as error:
        raise ConfigError("tree.directory: must be an address, or a list of addresses") from error
    node = read_own_table("tree", table, profile, TreeConfig)
    check_directories("tree.directory", addresses, "tree.needed", node.needed, len(addresses))
    return TreeSettings(tuple(map(Address, addresses)), node)


def onion_peers(settings: TreeSettings) -> Mapping[str, Address]:
    if len(settings.directories) == 1:
        return {"tree.directory": settings.directories[0]}
    return {f"tree.directory[{place}]": address for place, address in enumerate(settings.directories)}


def build(start: MachineInputs) -> NodeMember:
    tree: TreeSettings = start.settings
    from veilcast.tree.node import TreeNode  # The directory's commands need none.

    return TreeNode(
        tree.node,
        start.keyring,
        tree.directories,
        start.address,
        start.rng,
        start.entropy,
        start.now,
        start.records,
        start.revoked,
    )


_REFUSALS: Final = {
    "FULL": "it has no room; ask its operator",
    "LIMITED": "it is asked too much at present; wait",
    "MALFORMED": "the clock is wrong (more than 10 s ahead), or the membership is over or revoked",
}

MODE: Final = Mode(read_settings, build, "onions", hindrances, needs_peers=False, onion_peers=onion_peers)


class DirectoryFile(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    listen: str | None = None
    """The listening address; only without Tor."""
    tor: TorTable = TorTable()
    settings: DirectoryConfig = DirectoryConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tor.check_listen(self.listen)


def load_directory(path: Path) -> DirectoryFile:
    return toml_file.load_file(path, parse_directory)


def parse_directory(toml: bytes, path: Path) -> DirectoryFile:
    convert = settings_converter("tree", DirectoryFile, DirectoryConfig)
    return toml_file.parse_file(toml, path, DirectoryFile, convert, paths=TOR_PATHS)
