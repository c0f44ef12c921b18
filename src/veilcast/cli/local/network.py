"""A network on one machine: who is in it, who knows whom, and the files of each of its nodes.

Every node has an address of its own, 127.N.x.y: N is the node, so that no two share the prefix which the mesh counts
as one provider; x and y are drawn for the network, so that two networks never meet. Below DIR, the network has

    net.json                 what is written down here
    authority/               the authority, for more grants
    NN/node.toml, ...        one node each, to be used with every command that takes -c
    server/, proxy/          of a relay, its two hosts (see `relay`)
    directory/, testnet/     of a tree, its directory, and a private Tor network (see `tree`)
    broker/                  of foiling, its broker (see `foil`)
    operator/, NODE-N/       of an overlay of brokers, its operator and all replicas (see `brokers`)
    worker-N.pid, .log       the processes (see `crew`)

Everything is as in a network of many machines but for the passphrase, which lies beside what it locks and is stretched
cheaply: on one machine there is nobody to hide it from.


Names of a local network's nodes by their roles, the same in every network: `DIR/roles/publisher/node.toml`.

Which node publishes is drawn by lot, so its number differs from network to network, and a script needs a name that does
not. The links are not directly below DIR: what a person finds there by `DIR/*/tap` must have each node once."""

from __future__ import annotations

import base64
import contextlib
import errno
import shutil
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias

import msgspec

from veilcast.authority.epoch import BATCH_MAX, epoch_of
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import replace_file, write_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, make_directory, passphrase_file, state_file
from veilcast.cli.invocation import command_name
from veilcast.cli.local import brokers, foil, mosquitto, relay, tree
from veilcast.cli.local.brokers import OverlayPlan
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, LocalError, StorageError, TamperedError


def role_file(directory: Path, role: str) -> Path:
    """The file of the first node that has this role."""
    return links_directory(directory) / role / "node.toml"


def links_directory(directory: Path) -> Path:
    return directory / _ROLES


def link_roles(directory: Path, roles: Sequence[str], names: Sequence[str]) -> None:
    """Link each node, whose directory has this name, by its role: `publisher`, `publisher-2`, and so on."""
    make_directory(links_directory(directory))
    count = dict.fromkeys(roles, 0)
    for role, name in zip(roles, names, strict=True):
        count[role] += 1
        link = role if count[role] == 1 else f"{role}-{count[role]}"
        (links_directory(directory) / link).symlink_to(Path("..") / name)


_ROLES: Final = "roles"

NodeRole: TypeAlias = Literal["publisher", "subscriber", "forwarder"]


class SmallWorld(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixed neighbours, as in the papers' experiments."""

    neighbours: int
    rewire: float


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a network is to be. `topology` None lets certified members find one another."""

    nodes: int
    mode: Literal["mesh", "relay", "tree", "foil", "brokers"] = "mesh"
    profile: Profile = "hardened"
    cover: bool = False
    """Probabilistic forwarding, and `shellgame` the shell game; both are of the paper's profile."""
    shellgame: bool = False
    topology: SmallWorld | None = None
    epoch_us: int = 60_000_000
    rate: Literal[1, 4, 16] = 16
    heartbeat_cells: int = 4
    """The length of a heartbeat, in periods of cells."""
    publishers: int = 1
    subscribers: int = 5
    tap: bool = False
    tor: bool = True
    """Of a tree: whether nodes are reached through a private Tor network, or straight."""
    life_us: int = 86_400_000_000
    """For how long the grants hold."""
    overlay: OverlayPlan | None = None
    """Of brokers; None is three virtual nodes in a line."""
    roles: tuple[NodeRole, ...] = ()
    """Of the nodes, where it is not drawn who is what."""

    def __post_init__(self) -> None:
        # First, for it bounds how many brokers there are, and so the room for members.
        if self.mode == "brokers":
            self.brokers.check(self.profile, self.nodes)
        elif self.overlay is not None:
            raise ConfigError(f"an overlay is of the mode 'brokers', not of mode {self.mode!r}")
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
        if self.mode != "mesh" and (self.cover or self.shellgame or self.topology is not None):
            raise ConfigError(f"--pf, --sg and --topology are of the mesh, not of mode {self.mode!r}")
        if self.mode in ("relay", "foil", "brokers") and self.tap:
            raise ConfigError("--tap writes datagrams, and this mode has none; record its streams with tcpdump")
        if self.mode != "tree" and not self.tor:
            raise ConfigError("--no-tor is of the tree; nothing else uses Tor")
        if self.profile == "hardened" and (self.cover or self.shellgame):
            raise ConfigError("--pf and --sg are the paper's; use --profile paper")
        if self.topology is not None:
            from veilcast.sim.graphs import check_small_world

            check_small_world(self.nodes, self.topology.neighbours, self.topology.rewire)
        if self.epoch_us < self.epoch_min_us:
            raise ConfigError(f"--epoch must be at least {self.epoch_min_us / 1e6:g} s at this rate")

    @property
    def heartbeat_us(self) -> int:
        from veilcast.link.pacing import period_us

        return self.heartbeat_cells * period_us(self.rate)

    @property
    def epoch_min_us(self) -> int:
        return 3 * _LEAD_LEAST * self.heartbeat_us if self.mode == "mesh" else _EPOCH_LEAST_US[self.mode]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those who are no members: by their roles, or, since there are many, by the names of the replicas."""
        return self.brokers.hosts if self.mode == "brokers" else _HOSTS.get(self.mode, ())

    @property
    def brokers(self) -> OverlayPlan:
        return self.overlay or brokers.default_overlay()

    @property
    def spare_hosts(self) -> tuple[str, ...]:
        """Hosts that do not run until somebody starts them."""
        return self.brokers.spare_hosts if self.mode == "brokers" else ()

    def host_role(self, host: str) -> TlsRole:
        if self.mode == "brokers":
            return "broker"
        return next(standing for standing in _HOSTS.get(self.mode, ()) if standing == host)


class LocalNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network as it was laid out; `links` are pairs of nodes by their numbers, none where they find one another."""

    plan: NetworkPlan
    topic: str
    addresses: tuple[str, ...]
    roles: tuple[NodeRole, ...]
    links: tuple[tuple[int, int], ...]
    hosts: tuple[str, ...] = ()
    """Where those of `plan.hosts` listen, or a broker. Who listens nowhere, or at an onion service, has none here."""

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
    # What is laid out goes when the network does, so nothing of somebody else's may be among it.
    for place in _directories(directory, plan):
        if place.exists() or place.is_symlink():
            raise StorageError(f"{place} is there already, and of no network; choose another directory")
    if plan.mode == "foil":
        mosquitto.find_mosquitto()
    make_directory(directory)
    x, y = rng.randrange(256), rng.randrange(1, 255)
    others = 1 if plan.mode == "foil" else len(plan.hosts)
    places = [f"127.{number + 1}.{x}.{y}:{PORT}" for number in range(plan.nodes + others)]
    hosts = tuple(places[plan.nodes :])
    called = plan.mode in ("mesh", "tree")
    addresses = tuple(places[: plan.nodes]) if called else ("",) * plan.nodes
    if plan.mode == "tree" and plan.tor:
        addresses, hosts = ("",) * plan.nodes, ("",)
    cast: list[NodeRole] = ["forwarder"] * plan.nodes
    cast[: plan.publishers] = ["publisher"] * plan.publishers
    cast[plan.publishers : plan.publishers + plan.subscribers] = ["subscriber"] * plan.subscribers
    rng.shuffle(cast)
    cast = list(plan.roles) or cast
    net = LocalNetwork(plan, _TOPICS.get(plan.mode, TOPIC), addresses, tuple(cast), _links(plan, rng), hosts)
    try:
        replace_file(net_file(directory), msgspec.json.format(msgspec.json.encode(net)))
        _hand_out_keys(directory, net, context)
        common = {"profile": plan.profile, "keyring": KEYRING, "passphrase_file": passphrase_file(Path(KEYRING)).name}
        write = _writer(directory, net, common, context)
        for number in range(plan.nodes):
            table = {**common, "control": _SOCKET, **write(number)}
            replace_file(node_file(directory, number), format_toml(table).encode())
        link_roles(directory, net.roles, [node_directory(directory, number).name for number in range(plan.nodes)])
    except BaseException:
        remove_network(directory, net)
        raise
    return net


def check_addresses(net: LocalNetwork) -> None:
    """Whether this machine has the nodes' addresses, if they have any."""
    host, _, port = (net.hosts or net.addresses)[-1].rpartition(":")
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


def remove_network(directory: Path, net: LocalNetwork) -> None:
    """Take away what was laid out, and nothing else; the directory too, if that was all."""
    for place in _directories(directory, net.plan):
        shutil.rmtree(place, ignore_errors=True)
    net_file(directory).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # Not empty, not ours to remove, or where the command was started.
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


def _authority(directory: Path) -> Path:
    return directory / "authority"


def _directories(directory: Path, plan: NetworkPlan) -> list[Path]:
    """The directories of a network below its own."""
    hosts = [host_directory(directory, name) for name in plan.hosts]
    if plan.mode == "tree":
        hosts += tree.own_directories(directory, tor=plan.tor)
    if plan.mode == "foil":
        hosts.append(foil.broker_directory(directory))
    if plan.mode == "brokers":
        hosts += brokers.own_directories(directory)
    return [
        _authority(directory),
        links_directory(directory),
        *hosts,
        *(node_directory(directory, number) for number in range(plan.nodes)),
    ]


def _links(plan: NetworkPlan, rng: Random) -> tuple[tuple[int, int], ...]:
    if plan.topology is None:
        return ()
    from veilcast.sim.graphs import is_connected, watts_strogatz

    for _ in range(_TRIES):
        edges = watts_strogatz(plan.nodes, plan.topology.neighbours, plan.topology.rewire, rng)
        if is_connected(plan.nodes, edges):
            return tuple(edges)
    raise ConfigError("--topology: such a network falls into parts; take more neighbours")


def _hand_out_keys(directory: Path, net: LocalNetwork, context: Context) -> None:
    from veilcast.authority import issuer

    plan, entropy, now = net.plan, context.entropy, context.now_us()
    epoch, epochs = epoch_of(now, plan.epoch_us), min(BATCH_MAX, plan.life_us // plan.epoch_us + 1)
    secret = Secret(base64.b32encode(entropy(20)).lower())
    authority = issuer.create(plan.epoch_us, entropy)
    declare = foil.declare if plan.mode == "foil" else issuer.declare_label
    authority = declare(authority, net.topic, plan.profile, entropy)
    holders: list[tuple[str, list[tuple[str, TopicRole]], TlsRole]] = [
        (node_directory(directory, number).name, [] if role == "forwarder" else [(net.topic, role)], "member")
        for number, role in enumerate(net.roles)
    ]
    holders += [(name, [], plan.host_role(name)) for name in plan.hosts]
    for name, wanted, standing in holders:
        authority, keyring = issuer.grant_ready(
            authority, name, wanted, epoch, epochs, entropy, standing if plan.hosts else None
        )
        make_directory(directory / name)
        path = directory / name / KEYRING
        write_secret(path, keyring, secret, cost=_COST, entropy=entropy)
        replace_file(passphrase_file(path), secret.reveal())
    home = _authority(directory)
    make_directory(home)
    write_secret(state_file(home), authority, secret, cost=_COST, entropy=entropy)
    replace_file(home / "passphrase", secret.reveal())


def _writer(
    directory: Path, net: LocalNetwork, common: dict[str, Any], context: Context
) -> Callable[[int], dict[str, Any]]:
    """What gives the file of each node, after those of the hosts have been written."""
    if net.plan.mode == "relay":
        line = relay.write_hosts(directory, net.hosts, common, context)
        return lambda _: {"mode": "relay", "relay": {"proxies": [net.hosts[1]], "server_key": line}}
    if net.plan.mode == "tree":
        way = tree.write_directory(directory, net.hosts[0], common)
        return lambda number: tree.node_table(way, net.addresses[number])
    if net.plan.mode == "foil":
        return lambda _: foil.node_table(net.hosts[0])
    if net.plan.mode == "brokers":
        return brokers.write_hosts(
            directory, net.plan.brokers, net.hosts, common, context, partial(node_directory, directory)
        )
    return lambda number: _mesh_settings(net, number)


def _mesh_settings(net: LocalNetwork, number: int) -> dict[str, Any]:
    plan = net.plan
    mesh: dict[str, Any] = {"heartbeat_us": plan.heartbeat_us}
    if plan.topology is None:
        contacts = [other for other in range(min(_CONTACTS + 1, plan.nodes)) if other != number][:_CONTACTS]
    else:
        mesh["membership"] = "fixed"
        contacts = [v if u == number else u for u, v in net.links if number in (u, v)]
    if plan.profile == "paper":
        # Its heartbeats are as long on the wire as they are padded to: let that be what these addresses need.
        mesh["address_bytes_max"] = max(map(len, net.addresses))
    if plan.cover:
        mesh["cover"] = {"rule": "one", "mu": 0.6, "delay_us": 16 * plan.heartbeat_us}
    if plan.shellgame:
        mesh["shellgame"] = {"start": "child", "wait_us": 8 * plan.heartbeat_us}
    if plan.profile == "hardened":
        mesh["hardening"] = _hardening(plan)
    return {
        "listen": net.addresses[number],
        "peers": [net.addresses[contact] for contact in contacts],
        "rate": plan.rate,
        "mesh": mesh,
    }


def _hardening(plan: NetworkPlan) -> dict[str, int]:
    """The periods of a small network that has just begun: floods are short, and nobody has been up for long."""
    lead = min(_LEAD_MOST, plan.epoch_us // (3 * plan.heartbeat_us))
    return {
        "lead_periods": lead,
        "window_periods": lead // 3,
        "grace_periods": lead,
        "bit_periods": 2,
        "uptime_periods": 1,
    }


_HOSTS: Final[dict[str, tuple[TlsRole, ...]]] = {
    "relay": relay.HOSTS,
    "tree": (tree.DIRECTORY,),
}
_DECODER: Final = JsonDecoder(LocalNetwork, TamperedError, "is not what `net up` wrote")
TOPIC: Final = "news/eu"
_TOPICS: Final = {"foil": "stocks/acme"}
PORT: Final = 4000
NODES_MIN: Final = 3
NODES_MAX: Final = 250
"""The second number of an address counts the nodes."""

KEYRING: Final = "keys"
_SOCKET: Final = "node.sock"
"""Short, and not in the state directory: a socket's whole path may have a hundred bytes, and DIR may be deep."""
_COST: Final = PassphraseCost(passes=1, memory_mib=1)
_CONTACTS: Final = 3
_TRIES: Final = 100
_EPOCH_LEAST_US: Final = {"relay": 5_000_000, "tree": 30_000_000, "foil": 30_000_000, "brokers": 30_000_000}
_LEAD_LEAST: Final = 24
_LEAD_MOST: Final = 64
"""Heartbeats before an edge that its mesh begins to form: enough for a flood, a third of that to join, and to spare."""
