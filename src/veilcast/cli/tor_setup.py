"""The Tor of a process, as its file says, and the onion service at which the process is reached.

An onion service is its key, and ours is derived from the keyring: so no separate key on the disk needs a lock, and a
node has the same address in every run. A Tor of our own ends with us; from a Tor that runs already we only ask for the
service.

The composition of every node imports this module, and most modes have no Tor: each function imports the Tor code.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import derive_onion_key
from veilcast.cli.context import Context
from veilcast.cli.files import make_directory
from veilcast.cli.progress_bar import progress_bar
from veilcast.errors import ConfigError
from veilcast.machine import Address

if TYPE_CHECKING:
    from veilcast.net.onion import DirectDialer, TorDialer
    from veilcast.net.tor import Tor
    from veilcast.node.tor_table import TorTable

NO_TOR: Final[AbstractContextManager[Tor | None]] = nullcontext()

TorProgress: TypeAlias = Callable[[int], object]
"""Receives the progress of Tor's start, in percent."""


class TorEndpoint(NamedTuple):
    address: Address
    """The address by which others call us."""
    listen: str | socket.socket
    reach: TorDialer | DirectDialer


@contextmanager
def open_tor(table: TorTable, state: Path, on_progress: TorProgress = lambda percent: None) -> Iterator[Tor | None]:
    """Open the Tor that a file asks for, started and in its network; None if the file asks for none."""
    if table.danger_off:
        yield None
    elif table.control is not None:
        from veilcast.net.tor import attach_tor

        with attach_tor(table.control, cookie=None if table.cookie is None else Path(table.cookie)) as tor:
            yield tor
    else:
        network = None if table.network is None else Path(table.network)
        if network is not None and not network.exists():
            raise ConfigError(f"tor.network: there is no {network}; `veilcast tree testnet up` makes one")
        from veilcast.net.tor import start_tor

        make_directory(state)  # Tor would make it readable for others.
        with start_tor(state / "tor", network=network, on_progress=on_progress) as tor:
            yield tor


@contextmanager
def open_tor_with_progress(table: TorTable, state: Path, context: Context) -> Iterator[Tor | None]:
    """Open Tor with a progress bar on the terminal, and a warning if there is no Tor."""
    if table.danger_off:
        context.warn("DANGER: tor.danger_off: every called node and every observer on the way sees who calls")
        yield None
        return
    with ExitStack() as parts:
        with progress_bar("Tor joins its network", 100) as on_progress:
            tor = parts.enter_context(open_tor(table, state, on_progress))
        yield tor


def make_endpoint(listen: str | None, keyring: Keyring, tor: Tor | None) -> TorEndpoint:
    """Make the onion service of this keyring; without Tor, the endpoint at the address of the file."""
    from veilcast.net.onion import DirectDialer, open_doorway

    if tor is None:
        assert listen is not None
        return TorEndpoint(Address(listen), listen, DirectDialer())
    door = open_doorway()
    service = tor.serve(door.getsockname(), key=onion_service_key(keyring))
    return TorEndpoint(service.address, door, tor.reach)


def onion_address(keyring: Keyring) -> Address:
    """Return the onion address of a process with this keyring, whether it runs or not."""
    return Address(f"{derive_onion_key(keyring.membership.link).host}:{PORT}")


def onion_service_key(keyring: Keyring) -> str:
    """Return the key in the form of Tor's control port."""
    return "ED25519-V3:" + base64.b64encode(derive_onion_key(keyring.membership.link).expand().reveal()).decode()


PORT: Final = 80
"""The same port for all services: it tells nothing, and hides nobody."""
