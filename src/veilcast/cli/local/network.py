"""A network on one computer: its members and their roles, its links, and the files of each of its nodes.

Every node has an address of its own, 127.N.x.y. N is the node, so that no two share the prefix that the mesh counts as
one provider; x and y are drawn for the network, so that two networks never meet. Below DIR, the network has

    net.json                 the plan and the layout
    authority/               the authority, for more grants
    NN/node.toml, ...        one node each, for every command that takes -c
    roles/publisher, ...     links to the nodes by their roles, the same names in every network
    server/, proxy/          of a relay, its two hosts (see `relay`)
    directory/, testnet/     of a tree, its directory, and a private Tor network (see `tree`)
    broker/                  of foiling, its broker (see `foil`)
    operator/, NODE-N/       of an overlay of brokers, its operator and all replicas (see `brokers`)
    worker-N.pid, .log       the processes (see `workers`)

Everything is as in a network of many computers except the passphrase, which is stored beside what it locks and is cheap
to guess: on one computer there is nobody to hide it from.

The role of each node is drawn by lot, so its number differs from network to network, and scripts need names that do
not: `DIR/roles/publisher/node.toml`. The links are not directly below DIR: the pattern `DIR/*/tap` must match each node
once.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.authority.epoch import BATCH_MAX, epoch_of
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import replace_file, write_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, make_directory, passphrase_file, state_file
from veilcast.cli.invocation import command_name
from veilcast.cli.local.mode import LocalMode, local_mode
from veilcast.cli.local.overlay_plan import OverlayPlan, default_overlay
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, LocalError, StorageError, TamperedError

NodeRole: TypeAlias = Literal["publisher", "subscriber", "forwarder"]


class SmallWorld(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixed neighbours, as in the papers' experiments."""

    neighbours: int
    rewire: float


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a network. If `topology` is None, certified members find one another."""

    nodes: int
    mode: str = "mesh"
    profile: Profile = "hardened"
    cover: bool = False
    """Probabilistic forwarding; only in the paper's profile."""
    shellgame: bool = False
    """The shell game; only in the paper's profile."""
    topology: SmallWorld | None = None
    epoch_us: int = 60_000_000
    rate: Literal[1, 4, 16] = 16
    heartbeat_cells: int = 4
    """Length of a heartbeat, in cell periods."""
    publishers: int = 1
    subscribers: int = 5
    tap: bool = False
    tor: bool = True
    """True if the nodes of a tree are reached through a private Tor network, False if directly."""
    directories: int = 1
    """Directories of a tree."""
    life_us: int = 86_400_000_000
    """Lifetime of the grants, in microseconds."""
    overlay: OverlayPlan | None = None
    """The brokers' overlay (default: three virtual nodes in a line)."""
    roles: tuple[NodeRole, ...] = ()
    """The roles of the nodes, if they are not drawn by lot."""

    def __post_init__(self) -> None:
        # First, because it bounds the number of hosts, and so the room for members.
        self.local.check_hosts(self)
        least, room = 1 if self.roles else NODES_MIN, NODES_MAX - len(self.hosts)
        if room < least:
            raise ConfigError(
                f"{len(self.hosts)} brokers are too many for one machine, which has room for {NODES_MAX} of them and "
                "members together; take fewer"
            )
        if not least <= self.nodes <= room:
            raise ConfigError(f"a network on one machine has {least} to {room} nodes, not {self.nodes}")
        if min(self.publishers, self.subscribers) < 0 or self.publishers + self.subscribers > self.nodes:
            raise ConfigError(
                f"{self.publishers} publishers and {self.subscribers} subscribers do not fit into {self.nodes} nodes"
            )
        self.local.check_options(self)
        if self.profile == "hardened" and (self.cover or self.shellgame):
            raise ConfigError("--pf and --sg are the paper's; use --profile paper")
        if self.topology is not None:
            from veilcast.sim.graphs import check_small_world

            check_small_world(self.nodes, self.topology.neighbours, self.topology.rewire)
        least_us = self.local.epoch_min_us(self)
        if self.epoch_us < least_us:
            raise ConfigError(f"--epoch must be at least {least_us / 1e6:g} s at this rate")

    @property
    def local(self) -> LocalMode:
        """The part of the network that depends on its mode."""
        return local_mode(self.mode)

    @property
    def heartbeat_us(self) -> int:
        from veilcast.link.pacing import period_us

        return self.heartbeat_cells * period_us(self.rate)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts by name: their roles, or the names of the replicas of an overlay."""
        return self.local.hosts(self)

    @property
    def spare_hosts(self) -> tuple[str, ...]:
        """Hosts that do not run until a person starts them."""
        return self.local.spare_hosts(self)

    @property
    def brokers(self) -> OverlayPlan:
        return self.overlay or default_overlay()


class LocalNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network as it was laid out; `links` are pairs of node numbers, none if members find one another."""

    plan: NetworkPlan
    topic: str
    addresses: tuple[str, ...]
    roles: tuple[NodeRole, ...]
    links: tuple[tuple[int, int], ...]
    hosts: tuple[str, ...] = ()
    """Listening addresses of `plan.hosts`, or of an MQTT broker; empty for an onion service."""

    def nodes_with_role(self, role: NodeRole) -> list[int]:
        return [number for number, own in enumerate(self.roles) if own == role]


def lay_out(directory: Path, plan: NetworkPlan, context: Context, rng: Random) -> LocalNetwork:
    """Make the authority, the keyrings and the files of all nodes below a directory that holds no network yet."""
    if net_file(directory).exists():
        command = f"{command_name()} net"
        raise StorageError(
            f"{directory} holds a network already; `{command} start --dir {directory}` starts what is down,"
            f" `{command} down --dir {directory}` ends it"
        )
    # These directories are removed with the network, so they must not contain anything else.
    for place in _directories(directory, plan):
        if place.exists() or place.is_symlink():
            raise StorageError(f"{place} is there already, and of no network; choose another directory")
    plan.local.check_programs()
    make_directory(directory)
    network = _draw_network(plan, rng)
    try:
        replace_file(net_file(directory), msgspec.json.format(msgspec.json.encode(network)))
        _hand_out_keys(directory, network, context)
        common = {"profile": plan.profile, "keyring": KEYRING, "passphrase_file": passphrase_file(Path(KEYRING)).name}
        node_table = plan.local.write_hosts(directory, network, common, context)
        for number in range(plan.nodes):
            table = {**common, "control": _SOCKET, **node_table(number)}
            replace_file(node_file(directory, number), format_toml(table).encode())
        link_roles(directory, network.roles, [node_directory(directory, number).name for number in range(plan.nodes)])
    except BaseException:
        remove_network(directory, network)
        raise
    return network


def check_addresses(network: LocalNetwork) -> None:
    """Raise `LocalError` if this computer does not have the network's addresses."""
    host, _, port = (network.hosts or network.addresses)[-1].rpartition(":")
    if not host:
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, int(port)))
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise LocalError(f"cannot listen at {host}:{port}: {error.strerror}") from error
        raise LocalError(
            f"this machine does not answer at {host}. On Linux all of 127.0.0.0/8 is its own; on macOS each address"
            " must be added first: sudo ifconfig lo0 alias ADDRESS up"
        ) from error


def read_network(directory: Path) -> LocalNetwork:
    try:
        return _DECODER.decode(net_file(directory).read_bytes(), net_file(directory))
    except OSError as error:
        raise StorageError(
            f"{directory} holds no network; make one with `{command_name()} net up N --dir {directory}`"
        ) from error


def remove_network(directory: Path, network: LocalNetwork) -> None:
    """Remove what was laid out, and nothing else; the directory too, if it is empty then."""
    for place in _directories(directory, network.plan):
        shutil.rmtree(place, ignore_errors=True)
    net_file(directory).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # Not empty, not ours to remove, or the current directory of the command.
        directory.rmdir()


def net_file(directory: Path) -> Path:
    return directory / "net.json"


def node_directory(directory: Path, number: int) -> Path:
    return directory / f"{number + 1:02}"


def node_file(directory: Path, number: int) -> Path:
    return node_directory(directory, number) / "node.toml"


def host_directory(directory: Path, host: str) -> Path:
    return directory / host


def tap_directory(directory: Path, number: int) -> Path:
    return node_directory(directory, number) / "tap"


def role_file(directory: Path, role: str) -> Path:
    """The file of the first node that has this role."""
    return links_directory(directory) / role / "node.toml"


def links_directory(directory: Path) -> Path:
    return directory / _ROLES


def link_roles(directory: Path, roles: Sequence[str], names: Sequence[str]) -> None:
    """Link the directory of each node by its role: `publisher`, `publisher-2`, and so on."""
    make_directory(links_directory(directory))
    count = dict.fromkeys(roles, 0)
    for role, name in zip(roles, names, strict=True):
        count[role] += 1
        link = role if count[role] == 1 else f"{role}-{count[role]}"
        (links_directory(directory) / link).symlink_to(Path("..") / name)


def _draw_network(plan: NetworkPlan, rng: Random) -> LocalNetwork:
    """Draw addresses, roles and links."""
    local = plan.local
    x, y = rng.randrange(256), rng.randrange(1, 255)
    count = plan.nodes + local.count_addresses(plan)
    places = [f"127.{number + 1}.{x}.{y}:{PORT}" for number in range(count)]
    hosts = tuple(places[plan.nodes :])
    addresses = tuple(places[: plan.nodes]) if local.members_listen else ("",) * plan.nodes
    if local.uses_onions(plan):
        addresses, hosts = ("",) * plan.nodes, ("",) * len(hosts)
    roles: list[NodeRole] = ["forwarder"] * plan.nodes
    roles[: plan.publishers] = ["publisher"] * plan.publishers
    roles[plan.publishers : plan.publishers + plan.subscribers] = ["subscriber"] * plan.subscribers
    rng.shuffle(roles)
    return LocalNetwork(plan, local.topic, addresses, plan.roles or tuple(roles), _draw_links(plan, rng), hosts)


def _draw_links(plan: NetworkPlan, rng: Random) -> tuple[tuple[int, int], ...]:
    if plan.topology is None:
        return ()
    from veilcast.sim.graphs import is_connected, watts_strogatz

    for _ in range(_TRIES):
        edges = watts_strogatz(plan.nodes, plan.topology.neighbours, plan.topology.rewire, rng)
        if is_connected(plan.nodes, edges):
            return tuple(edges)
    raise ConfigError("--topology: such a network falls into parts; take more neighbours")


def _authority(directory: Path) -> Path:
    return directory / "authority"


def _directories(directory: Path, plan: NetworkPlan) -> list[Path]:
    """The directories of a network below its own."""
    return [
        _authority(directory),
        links_directory(directory),
        *(host_directory(directory, name) for name in plan.hosts),
        *plan.local.own_directories(directory, plan),
        *(node_directory(directory, number) for number in range(plan.nodes)),
    ]


def _hand_out_keys(directory: Path, network: LocalNetwork, context: Context) -> None:
    from veilcast.authority import issuer

    plan, entropy, now = network.plan, context.entropy, context.now_us()
    epoch, epochs = epoch_of(now, plan.epoch_us), min(BATCH_MAX, plan.life_us // plan.epoch_us + 1)
    secret = Secret(base64.b32encode(entropy(20)).lower())
    authority = issuer.create(plan.epoch_us, entropy)
    authority = plan.local.declare_topic(authority, network.topic, plan.profile, entropy)
    holders: list[tuple[str, list[tuple[str, TopicRole]], TlsRole]] = [
        (node_directory(directory, number).name, [] if role == "forwarder" else [(network.topic, role)], "member")
        for number, role in enumerate(network.roles)
    ]
    holders += [(name, [], plan.local.host_role(name)) for name in plan.hosts]
    for name, wanted, tls_role in holders:
        authority, keyring = issuer.grant_ready(
            authority, name, wanted, epoch, epochs, entropy, tls_role if plan.hosts else None
        )
        make_directory(directory / name)
        path = directory / name / KEYRING
        write_secret(path, keyring, secret, cost=CHEAP, entropy=entropy)
        replace_file(passphrase_file(path), secret.reveal())
    home = _authority(directory)
    make_directory(home)
    write_secret(state_file(home), authority, secret, cost=CHEAP, entropy=entropy)
    replace_file(home / "passphrase", secret.reveal())


_DECODER: Final = JsonDecoder(LocalNetwork, TamperedError, "is not what `net up` wrote")
PORT: Final = 4000
NODES_MIN: Final = 3
NODES_MAX: Final = 250
"""The second number of an address counts the nodes."""

KEYRING: Final = "keys"
CHEAP: Final = PassphraseCost(passes=1, memory_mib=1)
_SOCKET: Final = "node.sock"
"""Short, and not in the state directory: a socket's whole path may have a hundred bytes, and DIR may be deep."""
_ROLES: Final = "roles"
_TRIES: Final = 100
