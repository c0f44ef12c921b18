"""The files of a relay's two services, `server.toml` and `proxy.toml`, read as a node's is (`tomlfile`).

    keyring = "server.keys"                    # a membership for a server
    listen = "192.0.2.1:4100"
    keys = "server.secret"                     # what `veilcast relay server init` made

    keyring = "proxy.keys"                     # a membership for a proxy
    listen = "198.51.100.2:4101"
    server = "192.0.2.1:4100"
    server_key = "veilcast-server-..."         # the line that `veilcast relay server init` printed
    mask = "mask"                              # what `veilcast relay proxy init` made, the same for all proxies

What a machine can be told stands in the table `relay` of either: `relay/config.py` explains each key.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node import tomlfile
from veilcast.node.relay_keys import read_public
from veilcast.node.tomlfile import Process, check_address, naming_the_key
from veilcast.node.workers import MOST
from veilcast.relay.config import ProxyConfig, ServerConfig

_S = TypeVar("_S", bound=msgspec.Struct)
_F = TypeVar("_F", bound=Process)


class Host(Process, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both files have."""

    listen: str
    threads: int = 0
    """That multiply in the group; 0 is as many as the machine has cores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("listen", self.listen)
        if not 0 <= self.threads <= MOST:
            raise ConfigError(f"threads: must be between 0 and {MOST}")


class ServerFile(Host, frozen=True, forbid_unknown_fields=True, kw_only=True):
    keys: str
    settings: ServerConfig = ServerConfig()


class ProxyFile(Host, frozen=True, forbid_unknown_fields=True, kw_only=True):
    server: str
    server_key: str
    mask: str | None = None
    """None in `paper`, which has none."""
    settings: ProxyConfig = ProxyConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("server", self.server)
        read_public("server_key", self.server_key)
        if (self.mask is None) != (self.profile == "paper"):
            needed = "needed, and not there" if self.mask is None else "the papers' profile has no masks"
            raise ConfigError(f"mask: {needed}")

    @property
    def server_address(self) -> Address:
        return Address(self.server)


def load_server(path: Path) -> ServerFile:
    return tomlfile.load(path, parse_server)


def load_proxy(path: Path) -> ProxyFile:
    return tomlfile.load(path, parse_proxy)


def parse_server(toml: bytes, path: Path) -> ServerFile:
    return tomlfile.parse(toml, path, ServerFile, _converter(ServerFile, ServerConfig), paths=("keys",))


def parse_proxy(toml: bytes, path: Path) -> ProxyFile:
    return tomlfile.parse(toml, path, ProxyFile, _converter(ProxyFile, ProxyConfig), paths=("mask",))


def relay_settings(table: dict[str, Any], profile: str, kind: type[_S]) -> _S:
    """A machine's own table, called `relay` in every file."""
    if "profile" in table:
        raise ConfigError("relay.profile: the profile is named once, at the top of the file")
    try:
        return msgspec.convert({**table, "profile": profile}, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(naming_the_key(str(error), "relay")) from error


def _converter(file: type[_F], settings: type[_S]) -> Callable[[dict[str, Any]], _F]:
    def convert(table: dict[str, Any]) -> _F:
        if "settings" in table:
            raise ConfigError("settings: unknown key; the settings of a relay stand in the table relay")
        own = table.pop("relay", {})
        config = msgspec.convert(table, file)
        return msgspec.structs.replace(config, settings=relay_settings(own, config.profile, settings))

    return convert
