"""What a tree on one machine has besides its members: a directory, and a private Tor network to be reached in.

Below DIR they have `directory/directory.toml` with its keys beside, `testnet/`, and for each process that serves nodes
a Tor of its own, `tor-N/`, which they share: in a real network every member has one. Without Tor all that remains is
that it works; everybody on this machine can see who talks to whom.

The worker of every local network imports this module. So the functions import the code of the tree and of Tor, and not
the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_private_file, read_secret, replace_file
from veilcast.cli.files import format_toml, passphrase_file
from veilcast.cli.local.workers import WORKERS
from veilcast.cli.tor_setup import onion_address
from veilcast.crypto.secret import Secret

if TYPE_CHECKING:
    from veilcast.net.service import HostService, ServiceSetup
    from veilcast.net.tor import Tor
    from veilcast.node.tor_table import TorTable

DIRECTORY: Final[TlsRole] = "directory"


def own_directories(directory: Path, *, tor: bool) -> list[Path]:
    """What there is below a network's directory because of Tor."""
    return [directory / _TESTNET, *(tor_directory(directory, number) for number in range(WORKERS))] if tor else []


def testnet_directory(directory: Path) -> Path:
    return directory / _TESTNET


def tor_directory(directory: Path, worker: int) -> Path:
    return directory / f"tor-{worker}"


def tor_table(directory: Path, *, tor: bool) -> TorTable:
    """For all nodes of one process."""
    from veilcast.net.tor_testnet import network_file
    from veilcast.node.tor_table import TorTable

    return TorTable(network=str(network_file(testnet_directory(directory)))) if tor else TorTable(danger_off=True)


def write_directory(directory: Path, listen: str, common: dict[str, Any]) -> dict[str, Any]:
    """Make the directory's file, whose keyring is there already; what nodes need to find it, as their files say it."""
    from veilcast.net.tor_testnet import network_file

    home = directory / DIRECTORY
    keyring = home / common["keyring"]
    tor = {"danger_off": True} if listen else {"network": f"../{_TESTNET}/{network_file(Path()).name}"}
    own = {"listen": listen} if listen else {}
    table = {**common, **own, "tor": tor, "tree": {"lease_us": _LEASE_US, "publish_us": _PUBLISH_US}}
    replace_file(home / "directory.toml", format_toml(table).encode())
    address = listen or onion_address(
        read_secret(keyring, Keyring, Secret(read_private_file(passphrase_file(keyring))))
    )
    return {"mode": "tree", "tor": tor, "tree": {"directory": address, "fetch_us": _FETCH_US}}


def node_table(way: dict[str, Any], address: str) -> dict[str, Any]:
    return {**way, "listen": address} if address else way


@contextmanager
def compose_host(directory: Path, tor: Tor | None) -> Iterator[ServiceSetup[HostService]]:
    """The directory, ready to be served."""
    from veilcast.cli.compose_tree import compose_directory
    from veilcast.node.tree_files import load_directory

    config = load_directory(directory / DIRECTORY / "directory.toml")
    assert config.passphrase_file is not None
    with compose_directory(
        config, Secret(read_private_file(Path(config.passphrase_file))), nullcontext(tor)
    ) as station:
        yield station


_TESTNET: Final = "testnet"
_LEASE_US: Final = 60_000_000
_PUBLISH_US: Final = 1_000_000
_FETCH_US: Final = 10_000_000
"""A network that has just begun, and is looked at: it need not be quiet. But each fetch takes a circuit, and all who
share a Tor wait for its one thread."""
