"""The file of a node, `node.toml`, read into one frozen value that cannot be wrong.

`toml_file` has the keys that the files of all our processes share; this module has the other keys of a member's node.

    mode = "mesh"
    profile = "hardened"
    keyring = "alice.keyring"
    passphrase_file = "alice.passphrase"       # or passphrase_fd = 3; without either the node asks
    listen = "0.0.0.0:4000"
    address = "203.0.113.7:4000"               # the address for others; needed where `listen` is every address
    peers = ["198.51.100.2:4000"]
    rate = 4                                   # cells a second on each link: 1, 4 or 16

    [mesh]                                     # the mode's own settings
    neighbours_max = 32

A member of a mesh is called from outside and has an address. A member of a relay, of foiling or of brokers only dials
and has none. A member of a tree is called at an onion service, by the Tor of the table `tor`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node import toml_file
from veilcast.node.modes import MODES, mode_of
from veilcast.node.toml_file import (
    ProcessConfig,
    RendezvousConfig,
    check_address,
    explain_error,
    make_paths_absolute,
    parse_ip,
    pop_table,
)
from veilcast.node.tor_table import TOR_PATHS, TorTable


class NodeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of what a node stores for its clients. The mode limits what it stores of its own publications."""

    subscriptions: int = 64
    unread: int = 4096
    """Unacknowledged notes of one subscription; a full subscription accepts no more."""
    remembered: int = 65_536
    """Ids of acknowledged notes that the node remembers, so that a copy from the network does not reach a client
    again."""
    clients: int = 16
    """Connections to the control socket."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name}: must be at least 1")


class NodeConfig(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of the file. `settings` is the mode's own table, which has the name of the mode."""

    listen: str | None = None
    mode: str = "mesh"
    address: str | None = None
    peers: tuple[str, ...] = ()
    rate: Literal[1, 4, 16] = 4
    control: str | None = None
    """The control socket for commands and programs (default: `control.sock` in the state directory)."""
    limits: NodeLimits = NodeLimits()
    tor: TorTable = TorTable()
    rendezvous: RendezvousConfig = RendezvousConfig()
    settings: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        mode = mode_of(self.mode)
        driver = mode.driver
        if driver != "onions" and self.tor != TorTable():
            raise ConfigError(f"tor: a node of mode {self.mode!r} uses no Tor; leave it away")
        if driver == "udp":
            self._check_datagrams()
        else:
            keys, reason = _UNUSED_KEYS[driver]
            for key in keys:
                if getattr(self, key):
                    raise ConfigError(f"{key}: a node of mode {self.mode!r} {reason}; leave it away")
        if driver == "onions" and self.rendezvous.listen is not None and not self.tor.danger_off:
            raise ConfigError("rendezvous.listen: it would show the address that Tor hides; leave it away")
        if driver == "onions":
            self.tor.check_listen(self.listen)
            peers = {} if self.settings is None else mode.onion_peers(self.settings)
            for key, peer in peers.items():
                self.tor.check_peer(key, peer)

    def _check_datagrams(self) -> None:
        if self.listen is None:
            raise ConfigError("listen: needed, and not there")
        if parse_ip(check_address("listen", self.listen)).is_unspecified and self.address is None:
            raise ConfigError(f"address: needed, since {self.listen} is no address that others could be told")
        if parse_ip(check_address("address", self.public_address)).is_unspecified:
            raise ConfigError(f"address: {self.public_address} is no address that others could be told")
        for place, peer in enumerate(self.peers):
            check_address(f"peers[{place}]", peer)
        if self.public_address in self.peers:
            raise ConfigError(
                f"peers[{self.peers.index(self.public_address)}]: {self.public_address} is this node's own address"
            )

    @property
    def public_address(self) -> Address:
        """The address by which others know this node; empty if they do not call it."""
        return Address(self.address or self.listen or "")

    @property
    def contacts(self) -> tuple[Address, ...]:
        return tuple(map(Address, self.peers))

    @property
    def control_path(self) -> Path:
        return Path(self.control) if self.control is not None else Path(self.state) / "control.sock"


def load_config(path: Path) -> NodeConfig:
    return toml_file.load_file(path, parse_config)


def parse_config(toml: bytes, path: Path) -> NodeConfig:
    """Parse the file's content; relative paths become absolute."""
    config = toml_file.parse_file(toml, path, NodeConfig, _convert, paths=("control", *TOR_PATHS))
    return make_paths_absolute(config, [f"settings.{key}" for key in mode_of(config.mode).paths], path.parent)


def _convert(table: dict[str, Any]) -> NodeConfig:
    if "settings" in table:
        raise ConfigError("settings: unknown key; the settings of a mode stand in a table of its name")
    if "overlay" in table and "mode" not in table:
        raise ConfigError("overlay: unknown key; this is a broker's file, which `veilcast brokers run` runs")
    modes = (name for name in (*MODES, table.get("mode")) if isinstance(name, str))
    own = {name: pop_table(table, name) for name in modes if name in table}
    config = msgspec.convert(table, NodeConfig)
    for name in own:
        if name != config.mode:
            raise ConfigError(f"{name}: the mode is {config.mode!r}; settings of another are of no use")
    try:
        settings = mode_of(config.mode).settings(config.profile, own.get(config.mode, {}))
    except msgspec.ValidationError as error:
        raise ConfigError(explain_error(str(error), config.mode)) from error
    return msgspec.structs.replace(config, settings=settings)


_UNUSED_KEYS: Final = {
    "streams": (("listen", "address", "peers"), "is called by nobody"),
    "mqtt": (("listen", "address", "peers"), "is called by nobody"),
    "onions": (("address", "peers"), "is reached at its onion service, and finds others by the directory"),
}
"""Keys that a driver has no use for: where a node is called, and the peers that it calls."""
