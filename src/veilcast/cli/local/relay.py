"""The two hosts of a relay on one computer: a server and a proxy, with their files, for the members of a local network.

Below DIR they have `server/server.toml` and `proxy/proxy.toml`, with their keys beside. In a real relay two parties run
them and do not share what they know; here they only show how it works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, passphrase_file
from veilcast.cli.local.mode import LocalMode, Table
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

if TYPE_CHECKING:
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan
    from veilcast.net.service import HostService, ServiceSetup
    from veilcast.net.tor import Tor

HOSTS: Final[tuple[TlsRole, ...]] = ("server", "proxy")


class LocalRelay(LocalMode):
    def epoch_min_us(self, plan: NetworkPlan) -> int:
        return 5_000_000

    def hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        return HOSTS

    def host_role(self, host: str) -> TlsRole:
        return next(role for role in HOSTS if role == host)

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        line = write_hosts(directory, network.hosts, common, context)
        return lambda _: {"mode": "relay", "relay": {"proxies": [network.hosts[1]], "server_key": line}}

    def compose_host(
        self, directory: Path, network: LocalNetwork, host: str, tor: Tor | None
    ) -> AbstractContextManager[ServiceSetup[HostService]]:
        return compose_host(directory, self.host_role(host))


def write_hosts(directory: Path, addresses: tuple[str, ...], common: dict[str, Any], context: Context) -> str:
    """Write the files of both hosts, whose keyrings exist already; returns the line that identifies the server."""
    from veilcast.crypto.group import Scalar
    from veilcast.node.relay import encode_server_line, write_mask, write_server_keys
    from veilcast.relay.transformation_key import ServerKeys

    server, proxy = (directory / name for name in HOSTS)
    keys = ServerKeys.draw(context.entropy)
    secret = Secret(read_private_file(passphrase_file(server / common["keyring"])))
    write_server_keys(server / _SERVER_KEYS, keys, secret, cost=PassphraseCost(1, 1), entropy=context.entropy)
    line = encode_server_line(keys.public())
    _write(server, {**common, "listen": addresses[0], "keys": _SERVER_KEYS})
    own = {"listen": addresses[1], "server": addresses[0], "server_key": line}
    if common["profile"] == "hardened":
        write_mask(proxy / _MASK, Scalar.draw(context.entropy))
        own["mask"] = _MASK
    _write(proxy, {**common, **own})
    return line


@contextmanager
def compose_host(directory: Path, name: TlsRole) -> Iterator[ServiceSetup[HostService]]:
    """Compose one of the two hosts."""
    from veilcast.cli.compose_relay import compose_proxy, compose_server
    from veilcast.node.relay import load_proxy, load_server

    path = directory / name / f"{name}.toml"
    if name == "server":
        server = load_server(path)
        with compose_server(server, _passphrase(server.passphrase_file)) as setup:
            yield setup
    else:
        proxy = load_proxy(path)
        with compose_proxy(proxy, _passphrase(proxy.passphrase_file)) as setup:
            yield setup


def _write(directory: Path, table: dict[str, Any]) -> None:
    replace_file(directory / f"{directory.name}.toml", format_toml(table).encode())


def _passphrase(path: str | None) -> Secret:
    assert path is not None
    return Secret(read_private_file(Path(path)))


_SERVER_KEYS: Final = "server.secret"
_MASK: Final = "mask"
LOCAL: Final = LocalRelay()
