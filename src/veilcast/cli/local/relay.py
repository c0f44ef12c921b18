"""The two hosts of a relay on one machine: a server and a proxy, with their files, for the members of a local network.

Below DIR they have `server/server.toml` and `proxy/proxy.toml`, with their keys beside. In a real relay they are run by
two parties who do not tell one another what they know; here they only show how it works.

The worker of every local network imports this module. So the functions import the relay's code, and not the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, passphrase_file
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

if TYPE_CHECKING:
    from veilcast.net.service import HostService, ServiceSetup

HOSTS: Final[tuple[TlsRole, ...]] = ("server", "proxy")


def write_hosts(directory: Path, addresses: tuple[str, ...], common: dict[str, Any], context: Context) -> str:
    """Make the files of both, whose keyrings are there already; the line by which everybody knows the server."""
    from veilcast.crypto.group import Scalar
    from veilcast.node.relay_keys import encode_server_line, write_mask, write_server_keys
    from veilcast.relay.enrolment import ServerKeys

    server, proxy = (directory / name for name in HOSTS)
    keys = ServerKeys.draw(context.entropy)
    secret = Secret(read_private_file(passphrase_file(server / common["keyring"])))
    write_server_keys(server / _SERVER_KEYS, keys, secret, cost=PassphraseCost(1, 1), entropy=context.entropy)
    line = encode_server_line(keys.public())
    _write(server, {**common, "listen": addresses[0], "keys": _SERVER_KEYS})
    way = {"listen": addresses[1], "server": addresses[0], "server_key": line}
    if common["profile"] == "hardened":
        write_mask(proxy / _MASK, Scalar.draw(context.entropy))
        way["mask"] = _MASK
    _write(proxy, {**common, **way})
    return line


@contextmanager
def compose_host(directory: Path, name: TlsRole) -> Iterator[ServiceSetup[HostService]]:
    """One of the two, ready to be served."""
    from veilcast.cli.compose_relay import compose_proxy, compose_server
    from veilcast.node.relay_files import load_proxy, load_server

    path = directory / name / f"{name}.toml"
    if name == "server":
        server = load_server(path)
        with compose_server(server, _passphrase(server.passphrase_file)) as station:
            yield station
    else:
        proxy = load_proxy(path)
        with compose_proxy(proxy, _passphrase(proxy.passphrase_file)) as station:
            yield station


def _write(directory: Path, table: dict[str, Any]) -> None:
    replace_file(directory / f"{directory.name}.toml", format_toml(table).encode())


def _passphrase(path: str | None) -> Secret:
    assert path is not None
    return Secret(read_private_file(Path(path)))


_SERVER_KEYS: Final = "server.secret"
_MASK: Final = "mask"
