"""The part of a local network that differs between modes: hosts, addresses, files, services and words.

`veilcast.node.modes` names the module of each mode, and the module's constant `LOCAL` is a `LocalMode`. The worker and
the commands of every local network import that module, so its functions import the mode's own code, and not the module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from veilcast.errors import ConfigError
from veilcast.node.modes import entry_of

if TYPE_CHECKING:
    from veilcast.authority.issuer import Authority
    from veilcast.authority.role import TlsRole
    from veilcast.authority.topic_record import Profile
    from veilcast.cli.context import Context
    from veilcast.cli.local.network import LocalNetwork, NetworkPlan
    from veilcast.machine import Entropy
    from veilcast.net.control_protocol import Status
    from veilcast.net.service import ServiceSetup
    from veilcast.net.tor import Tor

TOPIC: Final = "news/eu"
Table: TypeAlias = dict[str, Any]
"""A table of a TOML file."""


def local_mode(name: str) -> LocalMode:
    mode: LocalMode = import_module(entry_of(name).local).LOCAL
    return mode


class LocalHost(NamedTuple):
    """A process that members need and that is no member: server, proxy, directory, broker, or the Tor network."""

    name: str
    address: str
    """Its listening address; empty if it is an onion service."""
    role: str
    up: bool
    detail: str = ""


class LocalMode:
    """The defaults fit a mode without hosts, whose members only dial."""

    topic: ClassVar[str] = TOPIC
    """The topic of the network."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The keys of `OPTIONS` that plans of this mode may set."""
    peer_noun: ClassVar[str] = "stream"
    """The name of a member's connection."""
    pub_arguments: ClassVar[str] = ""
    """Arguments of `pub` that every publication needs."""
    members_listen: ClassVar[bool] = False
    """True if members have addresses."""

    # --- the plan

    def check_hosts(self, plan: NetworkPlan) -> None:
        """Raise `ConfigError` if the plan's hosts are wrong. Called first, because hosts take addresses from
        members."""
        if plan.overlay is not None:
            raise ConfigError(f"an overlay is of the mode 'brokers', not of mode {plan.mode!r}")

    def check_options(self, plan: NetworkPlan) -> None:
        """Raise `ConfigError` if the plan sets an option of another mode."""
        for name, (is_set, reason) in OPTIONS.items():
            if name not in self.options and is_set(plan):
                raise ConfigError(reason.format(mode=plan.mode))

    def epoch_min_us(self, plan: NetworkPlan) -> int:
        """The shortest epoch, in microseconds."""
        return 30_000_000

    def hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        """The hosts with keyrings and directories, by name."""
        return ()

    def spare_hosts(self, plan: NetworkPlan) -> tuple[str, ...]:
        """Hosts that do not run until a person starts them."""
        return ()

    def host_role(self, host: str) -> TlsRole:
        raise NotImplementedError

    # --- the files

    def check_programs(self) -> None:
        """Raise `LocalError` if a program that the network needs is not installed."""

    def count_addresses(self, plan: NetworkPlan) -> int:
        """The number of addresses that the hosts need."""
        return len(self.hosts(plan))

    def uses_onions(self, plan: NetworkPlan) -> bool:
        """True if members and hosts are reached at onion services, so that nothing has an address."""
        return False

    def own_directories(self, directory: Path, plan: NetworkPlan) -> list[Path]:
        """Directories of the network other than those of nodes and hosts."""
        return []

    def declare_topic(self, authority: Authority, topic: str, profile: Profile, entropy: Entropy) -> Authority:
        from veilcast.authority import issuer

        return issuer.declare_label(authority, topic, profile, entropy)

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        """Write the files of the hosts, whose keyrings exist already; returns the function that makes the mode's part
        of each node's file. `common` is the part that all files share."""
        raise NotImplementedError

    # --- the processes

    def start(self, directory: Path, network: LocalNetwork, context: Context) -> None:
        """Start what the workers need and do not run themselves."""

    def check_started(self, directory: Path, network: LocalNetwork) -> None:
        """Raise `LocalError` if that has died."""

    def stop(self, directory: Path, network: LocalNetwork) -> int:
        """End that; returns the number of its processes."""
        return 0

    def open_worker(self, directory: Path, network: LocalNetwork, worker: int, parts: ExitStack) -> Tor | None:
        """Open what the nodes of one worker share; `parts` closes it. Returns their Tor, if the mode has one."""
        return None

    def compose_host(
        self, directory: Path, network: LocalNetwork, host: str, tor: Tor | None
    ) -> AbstractContextManager[ServiceSetup[Any]]:
        """Compose one of the hosts."""
        raise NotImplementedError

    # --- the words

    def danger(self, plan: NetworkPlan) -> str | None:
        """A warning about this plan."""
        return None

    def hints(self, directory: Path, plan: NetworkPlan, command: str) -> tuple[list[str], list[str]]:
        """Further commands to try, and lines about the first note."""
        return [], []

    def is_linked(self, status: Status, network: LocalNetwork) -> bool:
        """True if the node of this status has found others."""
        return status.neighbours > 0

    async def ask_hosts(self, directory: Path, network: LocalNetwork) -> list[LocalHost]:
        """Ask which hosts are up; spare ones are left out."""
        plan = network.plan
        named = [
            (name, address)
            for name, address in zip(plan.hosts, network.hosts, strict=True)
            if name not in plan.spare_hosts
        ]
        listening = await asyncio.gather(*(listens(address) for _, address in named))
        return [
            LocalHost(name, address, self.host_role(name), up)
            for (name, address), up in zip(named, listening, strict=True)
        ]


async def listens(address: str) -> bool:
    """Return True if a process accepts connections at this address."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), _CONNECT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


OPTIONS: Final[dict[str, tuple[Callable[[NetworkPlan], bool], str]]] = {
    "mesh": (
        lambda plan: plan.cover or plan.shellgame or plan.topology is not None,
        "--pf, --sg and --topology are of the mesh, not of mode {mode!r}",
    ),
    "tap": (
        lambda plan: plan.tap,
        "--tap writes datagrams, and this mode has none; record its streams with tcpdump",
    ),
    "directories": (lambda plan: plan.directories != 1, "--directories is of the tree, not of mode {mode!r}"),
    "tor": (lambda plan: not plan.tor, "--no-tor is of the tree; nothing else uses Tor"),
}
"""Options of a plan that only some modes have: whether a plan sets them, and the error of the other modes."""
_CONNECT_S: Final = 10.0
"""Seconds. Loopback answers or refuses at once; a busy computer may take seconds."""
