"""The files of a relay's two services, `server.toml` and `proxy.toml`, read as a node's is (`toml_file`).

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

from pathlib import Path

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node import toml_file
from veilcast.node.multiply_pool import THREADS_MAX
from veilcast.node.relay_keys import decode_server_line
from veilcast.node.toml_file import ProcessConfig, check_address, settings_converter
from veilcast.relay.config import RelayProxyConfig, RelayServerConfig


class RelayHostFile(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both files have."""

    listen: str
    threads: int = 0
    """That multiply in the group; 0 is as many as the machine has cores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("listen", self.listen)
        if not 0 <= self.threads <= THREADS_MAX:
            raise ConfigError(f"threads: must be between 0 and {THREADS_MAX}")


class ServerFile(RelayHostFile, frozen=True, forbid_unknown_fields=True, kw_only=True):
    keys: str
    settings: RelayServerConfig = RelayServerConfig()


class ProxyFile(RelayHostFile, frozen=True, forbid_unknown_fields=True, kw_only=True):
    server: str
    server_key: str
    mask: str | None = None
    """None in `paper`, which has none."""
    settings: RelayProxyConfig = RelayProxyConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("server", self.server)
        decode_server_line("server_key", self.server_key)
        if (self.mask is None) != (self.profile == "paper"):
            needed = "needed, and not there" if self.mask is None else "the papers' profile has no masks"
            raise ConfigError(f"mask: {needed}")

    @property
    def server_address(self) -> Address:
        return Address(self.server)


def load_server(path: Path) -> ServerFile:
    return toml_file.load_file(path, parse_server)


def load_proxy(path: Path) -> ProxyFile:
    return toml_file.load_file(path, parse_proxy)


def parse_server(toml: bytes, path: Path) -> ServerFile:
    return toml_file.parse_file(
        toml, path, ServerFile, settings_converter("relay", ServerFile, RelayServerConfig), paths=("keys",)
    )


def parse_proxy(toml: bytes, path: Path) -> ProxyFile:
    return toml_file.parse_file(
        toml, path, ProxyFile, settings_converter("relay", ProxyFile, RelayProxyConfig), paths=("mask",)
    )
