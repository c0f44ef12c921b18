"""An overlay of brokers on one machine: its operator, the replicas of all its virtual nodes, and where members join it.

Below DIR there are `operator/` with the operator's key, `overlay.toml` and `overlay.signed`, and for each replica a
directory like `north-1/` with its `broker.toml` and its keys. In a real overlay the replicas of a node are of different
owners, and on different machines: what one owner runs, one owner can read.

The worker of every local network imports this module. So the functions import the brokers' code, and not the module;
and the simulator's Byzantine brokers are imported only where a plan has some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_private_file, read_secret, replace_file
from veilcast.authority.topic_record import Profile
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, make_directory, passphrase_file
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError

if TYPE_CHECKING:
    from veilcast.cli.compose_brokers import BrokerService
    from veilcast.net.service import HostSetup


class VirtualNodePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A virtual node. `byzantine` is what its last replicas do wrong, one each, to show that it is borne."""

    name: str
    replicas: int = 3
    byzantine: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        from veilcast.node.broker_files import REPOSITORY

        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", self.name):
            raise ConfigError(f"virtual node {self.name!r}: a name has small letters and digits, 32 at most")
        if self.name in (SPARE, REPOSITORY):
            raise ConfigError(f"virtual node {self.name!r}: this is what brokers are called that belong to none")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise ConfigError(f"virtual node {self.name!r}: 1 to {REPLICAS_MAX} replicas on one machine")
        if len(self.byzantine) > self.replicas:
            raise ConfigError(f"virtual node {self.name!r}: it has {self.replicas} replicas, and more should lie")
        if self.byzantine:
            self._check_behaviours()

    def _check_behaviours(self) -> None:
        from veilcast.sim.brokers.adversaries import BEHAVIOURS

        for kind in self.byzantine:
            if kind not in BEHAVIOURS:
                names = ", ".join(BEHAVIOURS)
                raise ConfigError(f"virtual node {self.name!r}: byzantine is one of {names}, not {kind!r}")


class OverlayPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[VirtualNodePlan, ...]
    links: tuple[tuple[str, str], ...] = ()
    edges: tuple[str, ...] = ()
    """Of each member; where there are none, members are spread over all nodes."""
    spare: int = 0
    """Brokers with keys and files that do not run yet, for a plan to attach."""
    repository: int = 0
    """Replicas that keys go to, out of band; without any, they go by the brokers."""

    def check(self, profile: Profile, members: int) -> None:
        from veilcast.brokers.keys.scheme import check_hardened
        from veilcast.brokers.topology import OverlayTree
        from veilcast.node.broker_files import check_links

        names = [node.name for node in self.nodes]
        if len(set(names)) != len(names):
            raise ConfigError("two virtual nodes have one name")
        check_links(self.links)
        topology = OverlayTree.build({node.name: node.replicas for node in self.nodes}, self.links)
        if profile == "hardened":
            topology.check_hardened()
        if not 0 <= self.spare <= REPLICAS_MAX:
            raise ConfigError(f"spare: 0 to {REPLICAS_MAX} brokers")
        if not 0 <= self.repository <= REPLICAS_MAX:
            raise ConfigError(f"repository: 0 to {REPLICAS_MAX} replicas")
        if self.repository and profile == "hardened":
            check_hardened(self.repository, "the repository")
        if self.edges and len(self.edges) != members:
            raise ConfigError("every member has one edge node")
        for edge in self.edges:
            if edge not in names:
                raise ConfigError(f"a member's edge is {edge!r}, and there is no such virtual node")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The directories of all replicas, node by node, of the repository's, and of the spare ones."""
        return tuple(host for host, _, _ in self._replicas()) + self.repository_hosts + self.spare_hosts

    @property
    def repository_hosts(self) -> tuple[str, ...]:
        from veilcast.node.broker_files import REPOSITORY

        return tuple(f"{REPOSITORY}-{index}" for index in range(1, self.repository + 1))

    def edge(self, member: int) -> str:
        return self.edges[member] if self.edges else self.nodes[member % len(self.nodes)].name

    @property
    def spare_hosts(self) -> tuple[str, ...]:
        return tuple(f"{SPARE}-{index}" for index in range(1, self.spare + 1))

    def byzantine_kind(self, host: str) -> str | None:
        """What this replica does wrong."""
        for name, node, index in self._replicas():
            honest = node.replicas - len(node.byzantine)
            if name == host and index > honest:
                return node.byzantine[index - honest - 1]
        return None

    def _replicas(self) -> Iterator[tuple[str, VirtualNodePlan, int]]:
        for node in self.nodes:
            for index in range(1, node.replicas + 1):
                yield f"{node.name}-{index}", node, index


@cache
def default_overlay() -> OverlayPlan:
    """The plan of a network whose overlay nobody described: three virtual nodes in a line."""
    nodes = (VirtualNodePlan("north"), VirtualNodePlan("centre"), VirtualNodePlan("south"))
    return OverlayPlan(nodes, (("north", "centre"), ("centre", "south")))


def own_directories(directory: Path) -> list[Path]:
    return [operator_directory(directory)]


def operator_directory(directory: Path) -> Path:
    return directory / "operator"


def write_hosts(
    directory: Path,
    plan: OverlayPlan,
    addresses: tuple[str, ...],
    common: dict[str, Any],
    context: Context,
    home_of: Callable[[int], Path],
) -> Callable[[int], dict[str, Any]]:
    """Make the files of the operator and of all replicas, whose keyrings are there; what gives each member's table,
    and puts the overlay into its directory."""
    from veilcast.brokers.overlay import sign_overlay
    from veilcast.crypto.sign import SigningKey
    from veilcast.node.broker_files import load_overlay, write_signed
    from veilcast.node.broker_keys import encode_operator_line, write_operator_key

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
        # Each has a copy of its own, which it replaces when it goes by a newer one.
        write_signed(directory / host / SIGNED, signed)
        own = {"listen": address, "overlay": SIGNED, "operator": line, "control": SOCKET}
        replace_file(broker_file(directory, host), format_toml({**common, **own}).encode())

    def table(member: int) -> dict[str, Any]:
        write_signed(home_of(member) / SIGNED, signed)
        way = {"overlay": SIGNED, "operator": line, "edge": plan.edge(member)}
        if plan.repository:
            way["delivery"] = "repository"
        return {"mode": "brokers", "brokers": way}

    return table


@contextmanager
def compose_host(directory: Path, plan: OverlayPlan, host: str) -> Iterator[HostSetup[BrokerService]]:
    """One of the replicas, ready to be served."""
    from veilcast.cli.compose_brokers import compose_broker
    from veilcast.node.broker_files import load_broker

    config = load_broker(broker_file(directory, host))
    assert config.passphrase_file is not None
    kind = plan.byzantine_kind(host)
    astray = None
    if kind is not None:
        from veilcast.cli.local.byzantine_brokers import make_byzantine

        astray = make_byzantine(kind, config)
    with compose_broker(config, Secret(read_private_file(Path(config.passphrase_file))), astray) as station:
        yield station


def broker_file(directory: Path, host: str) -> Path:
    return directory / host / "broker.toml"


def broker_socket(directory: Path, host: str) -> Path:
    return directory / host / SOCKET


def broker_line(directory: Path, host: str, keyring: str) -> str:
    """By which the operator knows this broker."""
    from veilcast.node.broker_keys import broker_public, encode_broker_line

    path = directory / host / keyring
    return encode_broker_line(
        broker_public(read_secret(path, Keyring, Secret(read_private_file(passphrase_file(path)))))
    )


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


REPLICAS_MAX: Final = 15
SPARE: Final = "spare"
KEY: Final = "operator.key"
TABLE: Final = "overlay.toml"
SIGNED: Final = "overlay.signed"
SOCKET: Final = "broker.sock"
