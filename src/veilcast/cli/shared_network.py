"""What the files of all members of a network share: the mode, its own table, the files that it names, and peers.

An inviter takes it from the file of a node (or from one that `veilcast node new` prints), and keeps it beside the
authority's state, so that later invitations need no options. A joiner makes its node's file of it. Nothing of the
member whose file it was goes along: no path, no passphrase, no login, no control socket, no Tor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from veilcast.authority.secret_file import replace_file
from veilcast.cli.files import format_toml, make_directory
from veilcast.cli.input_checks import read_file
from veilcast.decoding import read_toml
from veilcast.errors import ConfigError
from veilcast.invitation.messages import InvitationOffer
from veilcast.node.config import NodeConfig, load_config, parse_config
from veilcast.node.modes import mode_of


class SharedNetwork(NamedTuple):
    table: dict[str, Any]
    files: Mapping[str, bytes]
    """Files that the table names, by their plain names."""
    via: str = ""
    """The rendezvous at which joiners are met; empty if they call the inviter."""

    @property
    def mode(self) -> str:
        return str(self.table.get("mode", "mesh"))

    def format(self) -> str:
        return format_toml(self.table)

    def add_peer(self, address: str) -> SharedNetwork:
        """A mesh whose newcomers also call this member; the oldest of many peers goes."""
        if not address or self.mode != "mesh":
            return self
        others = [peer for peer in self.table.get("peers", []) if peer != address]
        return self._replace(table={**self.table, "peers": [*others, address][-PEERS_MAX:]})


def read_network(path: Path) -> SharedNetwork:
    """The shared part of a node's file. In a mesh the node itself becomes a peer."""
    config = load_config(path)
    given = read_toml(read_file(path), path)
    table: dict[str, Any] = {key: given[key] for key in _KEYS if key in given}
    table["mode"] = config.mode
    files: dict[str, bytes] = {}
    own = {key: value for key, value in given.get(config.mode, {}).items() if key not in _PRIVATE}
    for key in {name.rpartition(".")[2] for name in mode_of(config.mode).paths} - _PRIVATE:
        for holder in (own, *own.get("also", [])):
            if isinstance(holder.get(key), str):
                holder[key] = _take_file(files, path.parent / holder[key])
    if own:
        table[config.mode] = own
    network = SharedNetwork(table, files, config.rendezvous.place)
    return network if config.listen is None else network.add_peer(config.public_address)


def load_network(directory: Path) -> SharedNetwork | None:
    """What earlier invitations of this authority kept."""
    path = directory / FOLDER / _FILE
    if not path.exists():
        return None
    others = {each.name: read_file(each) for each in sorted(path.parent.iterdir()) if not each.name.startswith(".")}
    table, via = read_toml(others.pop(_FILE), path), others.pop(_VIA, b"").decode()
    return SharedNetwork(table, others, via)


def keep_network(directory: Path, network: SharedNetwork) -> None:
    make_directory(directory / FOLDER)
    for name, content in network.files.items():
        replace_file(directory / FOLDER / name, content)
    if network.via:
        replace_file(directory / FOLDER / _VIA, network.via.encode())
    replace_file(directory / FOLDER / _FILE, network.format().encode())


def parse_offer(offer: InvitationOffer) -> SharedNetwork:
    """The network of an offer. Raises `ConfigError` if it would set more than a member's file shares with others."""
    table = read_toml(offer.network.encode(), "the invitation")
    mode = table.get("mode")
    for key, value in table.items():
        if key not in (*_KEYS, mode):
            raise ConfigError(f"the invitation sets {key!r}, which is each member's own; nothing was joined")
        if not _is_plain(value) or (key == "peers" and not isinstance(value, list)):
            raise ConfigError(f"the invitation has no usable {key!r}; nothing was joined")
    if any(not _NAME.fullmatch(name) for name in offer.files):
        raise ConfigError("the invitation has a file with a name that could be a path; nothing was joined")
    return SharedNetwork(table, offer.files)


def write_member_files(
    directory: Path, network: SharedNetwork, keyring: str, listen: str | None, extra: Mapping[str, Any]
) -> NodeConfig:
    """Write the node's file and the files that it names, once the whole has been checked."""
    own = {"mode": network.mode, "keyring": keyring}
    if listen is not None:
        own["listen"] = listen
    rest = {key: value for key, value in network.table.items() if key != "mode"}
    if "peers" in rest:
        rest["peers"] = [peer for peer in rest["peers"] if peer != listen]
    text = _HEAD + format_toml({**own, **rest, **extra})
    path = directory / _FILE
    config = parse_config(text.encode(), path)
    for name, content in network.files.items():
        replace_file(directory / name, content)
    replace_file(path, text.encode())
    return config


def _is_plain(value: Any) -> bool:
    """Whether `format_toml` can write the value: numbers, texts, and lists and tables of these."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value)) and len({isinstance(each, dict) for each in value}) < 2
    return isinstance(value, str | int | float)


def _take_file(files: dict[str, bytes], path: Path) -> str:
    name = path.name if _NAME.fullmatch(path.name) else f"file-{len(files)}"
    content = read_file(path)
    if len(content) > FILE_MAX:
        raise ConfigError(f"{path} has more than {FILE_MAX:,} bytes, too many for an invitation; carry it by hand")
    if files.setdefault(name, content) != content:
        raise ConfigError(f"two files of this node are called {name}; rename one of them")
    return name


FOLDER: Final = "network"
"""The directory beside the authority's state."""
PEERS_MAX: Final = 8
FILE_MAX: Final = 256 << 10
_FILE: Final = "node.toml"
_VIA: Final = "rendezvous"
_KEYS: Final = ("mode", "profile", "rate", "peers")
_PRIVATE: Final = frozenset({"login"})
_NAME: Final = re.compile(r"(?!node\.toml$|rendezvous$|member\.keys)[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_HEAD: Final = """\
# The file of one node: veilcast node run -c node.toml. All keys: docs/member.md. Paths are relative to this file.
# Made by `veilcast join`.
"""
