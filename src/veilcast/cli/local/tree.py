"""The parts of a tree on one computer other than its members: its directories, and a private Tor network.

Below DIR they have `directory/directory.toml` with its keys beside (`directory-2/` is the second), `testnet/`, and for
each worker a Tor of its own, `tor-N/`, which its nodes share: in a real network every member has one. Without Tor the
tree works, but every process on this computer can see the connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_private_file, read_secret, replace_file
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, passphrase_file
from veilcast.cli.invocation import command_name
from veilcast.cli.local.mode import LocalHost, LocalMode, Table
from veilcast.cli.local.workers import WORKERS, living_workers
from veilcast.cli.phrases import pluralize
from veilcast.cli.progress_bar import progress_bar, tell_progress
from veilcast.cli.tor_setup import onion_address, open_tor
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, LocalError
from veilcast.wire.geometry import DIRECTORIES_MAX

if TYPE_CHECKING:
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan
    from veilcast.net.control_protocol import Status
    from veilcast.net.service import HostService, ServiceSetup
    from veilcast.net.tor import Tor
    from veilcast.node.tor_table import TorTable

DIRECTORY: Final[TlsRole] = "directory"


class LocalTree(LocalMode):
    options = frozenset({"directories", "tap", "tor"})
    members_listen = True

    def check_hosts(self, plan: NetworkPlan) -> None:
        super().check_hosts(plan)
        if not 1 <= plan.directories <= DIRECTORIES_MAX:
            raise ConfigError(f"a tree has 1 to {DIRECTORIES_MAX} directories, not {plan.directories}")

    def hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        return (DIRECTORY, *(f"{DIRECTORY}-{number}" for number in range(2, plan.directories + 1)))

    def host_role(self, host: str) -> TlsRole:
        return DIRECTORY

    def uses_onions(self, plan: NetworkPlan) -> bool:
        return plan.tor

    def own_directories(self, directory: Path, plan: NetworkPlan) -> list[Path]:
        if not plan.tor:
            return []
        return [testnet_directory(directory), *(tor_directory(directory, number) for number in range(WORKERS))]

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        own = write_directories(directory, dict(zip(network.plan.hosts, network.hosts, strict=True)), common)

        def node_table(number: int) -> Table:
            address = network.addresses[number]
            return {**own, "listen": address} if address else own

        return node_table

    def start(self, directory: Path, network: LocalNetwork, context: Context) -> None:
        if not network.plan.tor:
            return
        from veilcast.net import tor_testnet

        tell_progress(context, "starting a private Tor network, which takes about half a minute")
        with progress_bar("Tors that know the others") as on_progress:
            tor_testnet.start_network(testnet_directory(directory), on_progress=on_progress)
        nodes = pluralize(network.plan.nodes, "node")
        tell_progress(context, f"Tor is up; {nodes} and their directory find one another")

    def check_started(self, directory: Path, network: LocalNetwork) -> None:
        if not network.plan.tor:
            return
        from veilcast.net import tor_testnet

        home = testnet_directory(directory)
        if not all(process.pid for process in tor_testnet.list_processes(home)):
            raise LocalError(
                f"the private Tor network in {home} is down; make a new network: `{command_name()} net down --dir"
                f" {directory}`, then `net up`"
            )

    def stop(self, directory: Path, network: LocalNetwork) -> int:
        home = testnet_directory(directory)
        if not home.exists():
            return 0
        from veilcast.net import tor_testnet

        return tor_testnet.stop_network(home)

    def open_worker(self, directory: Path, network: LocalNetwork, worker: int, parts: ExitStack) -> Tor | None:
        table = tor_table(directory, tor=network.plan.tor)
        return parts.enter_context(open_tor(table, tor_directory(directory, worker)))

    def compose_host(
        self, directory: Path, network: LocalNetwork, host: str, tor: Tor | None
    ) -> AbstractContextManager[ServiceSetup[HostService]]:
        return compose_host(directory, host, tor)

    def danger(self, plan: NetworkPlan) -> str | None:
        if plan.tor:
            return None
        return "DANGER: --no-tor: nodes call one another directly, and every observer sees who talks to whom"

    def hints(self, directory: Path, plan: NetworkPlan, command: str) -> tuple[list[str], list[str]]:
        return [], ["a first note may take a minute: readers lay their trees"]

    def is_linked(self, status: Status, network: LocalNetwork) -> bool:
        """Streams come and go; a node with the complete listing can call the others when it has something to send."""
        return status.members >= network.plan.nodes

    async def ask_hosts(self, directory: Path, network: LocalNetwork) -> list[LocalHost]:
        if not network.plan.tor:
            return await super().ask_hosts(directory, network)
        # An onion service has no address here; the first worker serves the directories.
        serving = any(path.stem == "worker-0" for path in living_workers(directory))
        return [*(LocalHost(name, "", DIRECTORY, serving) for name in network.plan.hosts), _tor_host(directory)]


def testnet_directory(directory: Path) -> Path:
    return directory / _TESTNET


def tor_directory(directory: Path, worker: int) -> Path:
    return directory / f"tor-{worker}"


def tor_table(directory: Path, *, tor: bool) -> TorTable:
    """The table `tor` for all nodes of one worker."""
    from veilcast.net.tor_testnet import network_file
    from veilcast.node.tor_table import TorTable

    return TorTable(network=str(network_file(testnet_directory(directory)))) if tor else TorTable(danger_off=True)


def write_directories(directory: Path, listens: Mapping[str, str], common: dict[str, Any]) -> dict[str, Any]:
    """Write the files of the directories, whose keyrings exist already; returns the part of a node's file that finds
    them. `listens` has the listening address of each; it is empty if a directory is an onion service."""
    from veilcast.net.tor_testnet import network_file

    addresses = {name: listen or _onion_of(directory / name / common["keyring"]) for name, listen in listens.items()}
    tor: Table = {"network": f"../{_TESTNET}/{network_file(Path()).name}"}
    if any(listens.values()):
        tor = {"danger_off": True}
    for name, listen in listens.items():
        others = [address for other, address in addresses.items() if other != name]
        tree: Table = {"lease_us": _LEASE_US, "publish_us": _PUBLISH_US}
        if others:
            tree |= {"others": others, "round_us": _ROUND_US}
        own = {"listen": listen} if listen else {}
        table = {**common, **own, "tor": tor, "tree": tree}
        replace_file(directory / name / "directory.toml", format_toml(table).encode())
    first, *more = addresses.values()
    return {"mode": "tree", "tor": tor, "tree": {"directory": [first, *more] if more else first, "fetch_us": _FETCH_US}}


@contextmanager
def compose_host(directory: Path, host: str, tor: Tor | None) -> Iterator[ServiceSetup[HostService]]:
    """Compose a directory."""
    from veilcast.cli.compose_tree import compose_directory
    from veilcast.node.tree import load_directory

    config = load_directory(directory / host / "directory.toml")
    assert config.passphrase_file is not None
    secret = Secret(read_private_file(Path(config.passphrase_file)))
    with compose_directory(config, secret, nullcontext(tor)) as setup:
        yield setup


def _onion_of(keyring: Path) -> str:
    return onion_address(read_secret(keyring, Keyring, Secret(read_private_file(passphrase_file(keyring)))))


def _tor_host(directory: Path) -> LocalHost:
    from veilcast.net import tor_testnet

    found = tor_testnet.list_processes(testnet_directory(directory))
    up = sum(process.pid is not None for process in found)
    return LocalHost("testnet", "", "tor", up == len(found), f"{up} of {pluralize(len(found), 'process')} up")


_TESTNET: Final = "testnet"
_LEASE_US: Final = 60_000_000
_PUBLISH_US: Final = 1_000_000
_ROUND_US: Final = 10_000_000
_FETCH_US: Final = 10_000_000
"""Microseconds, short for a new network that a person watches: it need not be quiet. But each fetch takes a circuit,
and all nodes that share a Tor wait for its one thread."""
LOCAL: Final = LocalTree()
