"""An overlay of brokers on one computer: its operator, the replicas of all its virtual nodes, and the members' files.

Below DIR there are `operator/` with the operator's key, `overlay.toml` and `overlay.signed`, and for each replica a
directory like `north-1/` with its `broker.toml` and its keys. In a real overlay different owners run the replicas of a
node, on different computers: an owner can read everything on its own brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_private_file, read_secret, replace_file
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, make_directory, passphrase_file
from veilcast.cli.local.mode import LocalMode, Table
from veilcast.cli.local.overlay_plan import OverlayPlan
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

if TYPE_CHECKING:
    from veilcast.cli.compose_brokers import BrokerService
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan
    from veilcast.net.control_protocol import Status
    from veilcast.net.service import HostSetup
    from veilcast.net.tor import Tor


class LocalBrokers(LocalMode):
    peer_noun = "replica"

    def check_hosts(self, plan: NetworkPlan) -> None:
        plan.brokers.check(plan.profile, plan.nodes)

    def hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        return plan.brokers.hosts

    def spare_hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        return plan.brokers.spare_hosts

    def host_role(self, host: str) -> TlsRole:
        return "broker"

    def own_directories(self, directory: Path, plan: NetworkPlan) -> list[Path]:
        return [operator_directory(directory)]

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        from veilcast.cli.local.network import node_directory

        home_of = partial(node_directory, directory)
        return write_hosts(directory, network.plan.brokers, network.hosts, common, context, home_of)

    def compose_host(
        self, directory: Path, network: LocalNetwork, host: str, tor: Tor | None
    ) -> AbstractContextManager[HostSetup[BrokerService]]:
        return compose_host(directory, network.plan.brokers, host)

    def hints(self, directory: Path, plan: NetworkPlan, command: str) -> tuple[list[str], list[str]]:
        return [f"  {command} brokers status --dir {directory}"], []

    def is_linked(self, status: Status, network: LocalNetwork) -> bool:
        return not status.hindrances


def operator_directory(directory: Path) -> Path:
    return directory / "operator"


def write_hosts(
    directory: Path,
    plan: OverlayPlan,
    addresses: tuple[str, ...],
    common: dict[str, Any],
    context: Context,
    home_of: Callable[[int], Path],
) -> Callable[[int], Table]:
    """Write the files of the operator and of all replicas, whose keyrings exist already. Returns the function that
    makes each member's table and copies the overlay into the member's directory."""
    from veilcast.brokers.overlay import sign_overlay
    from veilcast.crypto.sign import SigningKey
    from veilcast.node.broker_overlay import encode_operator_line, load_overlay, write_operator_key, write_signed

    home = operator_directory(directory)
    make_directory(home)
    key = SigningKey.generate(context.entropy)
    secret = Secret(read_private_file(passphrase_file(directory / plan.hosts[0] / common["keyring"])))
    write_operator_key(home / KEY, key, secret, cost=PassphraseCost(1, 1), entropy=context.entropy)
    replace_file(passphrase_file(home / KEY), secret.reveal())
    where = dict(zip(plan.hosts, addresses, strict=True))
    replace_file(home / TABLE, _overlay_table(directory, plan, where, common).encode(), mode=0o644)
    signed = sign_overlay(load_overlay(home / TABLE), key)
    write_signed(home / SIGNED, signed)
    line = encode_operator_line(key.public)
    for host, address in where.items():
        # Each broker has a copy of its own, which it replaces when it adopts a newer overlay.
        write_signed(directory / host / SIGNED, signed)
        own = {"listen": address, "overlay": SIGNED, "operator": line, "control": SOCKET}
        replace_file(broker_file(directory, host), format_toml({**common, **own}).encode())

    def node_table(member: int) -> Table:
        write_signed(home_of(member) / SIGNED, signed)
        path = {"overlay": SIGNED, "operator": line, "edge": plan.edge(member)}
        if plan.repository:
            path["delivery"] = "repository"
        return {"mode": "brokers", "brokers": path}

    return node_table


@contextmanager
def compose_host(directory: Path, plan: OverlayPlan, host: str) -> Iterator[HostSetup[BrokerService]]:
    """Compose one of the replicas."""
    from veilcast.cli.compose_brokers import compose_broker
    from veilcast.node.broker_overlay import load_broker

    config = load_broker(broker_file(directory, host))
    assert config.passphrase_file is not None
    kind = plan.byzantine_kind(host)
    wrapper = None
    if kind is not None:
        from veilcast.cli.local.byzantine_brokers import byzantine_wrapper

        wrapper = byzantine_wrapper(kind, config)
    with compose_broker(config, Secret(read_private_file(Path(config.passphrase_file))), wrapper) as setup:
        yield setup


def broker_file(directory: Path, host: str) -> Path:
    return directory / host / "broker.toml"


def broker_socket(directory: Path, host: str) -> Path:
    return directory / host / SOCKET


def broker_line(directory: Path, host: str, keyring: str) -> str:
    """The line by which the operator knows this broker."""
    from veilcast.node.broker_overlay import broker_public, encode_broker_line

    path = directory / host / keyring
    secret = Secret(read_private_file(passphrase_file(path)))
    return encode_broker_line(broker_public(read_secret(path, Keyring, secret)))


def _overlay_table(directory: Path, plan: OverlayPlan, where: dict[str, str], common: dict[str, Any]) -> str:
    """TOML's arrays of tables are no JSON, unlike the rest."""
    links = [list(link) for link in plan.links]
    text = format_toml({"profile": common["profile"], "links": links})

    def replicas(hosts: Iterable[str]) -> str:
        lines = ((broker_line(directory, host, common["keyring"]), where[host]) for host in hosts)
        return "[\n" + "".join(f'  {{ broker = "{line}", address = "{at}" }},\n' for line, at in lines) + "]\n"

    text += f"repository = {replicas(plan.repository_hosts)}"
    for node in plan.nodes:
        text += f"\n[[nodes]]\nname = {node.name!r}\n"
        text += f"replicas = {replicas(f'{node.name}-{index}' for index in range(1, node.replicas + 1))}"
    return text


KEY: Final = "operator.key"
TABLE: Final = "overlay.toml"
SIGNED: Final = "overlay.signed"
SOCKET: Final = "broker.sock"
LOCAL: Final = LocalBrokers()
