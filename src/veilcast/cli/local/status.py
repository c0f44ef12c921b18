"""Asking all nodes of a local network at once, each through its own control socket, as any program would.

The hosts of a local network: what its members need and that is no member, and whether it is up.

The parts of a local network that a person started by hand: they run, and none of the network's workers serves them.

A member or host holds a lock on its state directory for as long as it runs. After all workers have ended, a state that
is still locked belongs to a process started by hand. Such a node can be asked to stop by its control socket; a server,
proxy, directory or broker has none, so its owner must end it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from veilcast.authority.secret_file import is_directory_locked
from veilcast.cli.invocation import command_name
from veilcast.cli.local import tree, workers
from veilcast.cli.local.network import LocalNetwork, host_directory, node_directory, node_file
from veilcast.cli.local.workers import WorkerGroup
from veilcast.cli.phrases import pluralize
from veilcast.errors import LocalError, StorageError, UnreachableError, VeilcastError
from veilcast.net.agent import Status
from veilcast.net.client import open_client


class LocalHost(NamedTuple):
    """A process that members need and that is no member: server, proxy, directory, broker, or the Tor network."""

    name: str
    address: str
    """Where it listens; empty if it listens at an onion service."""
    role: str
    up: bool
    detail: str = ""


async def ask_hosts(directory: Path, net: LocalNetwork) -> list[LocalHost]:
    """All hosts of a network but spare brokers, which do not run yet."""
    plan = net.plan
    if plan.mode == "foil":
        return [LocalHost("broker", net.hosts[0], "broker", await _listens(net.hosts[0]))]
    spares = plan.spare_hosts
    named = [(name, address) for name, address in zip(plan.hosts, net.hosts, strict=True) if name not in spares]
    if plan.mode == "tree" and plan.tor:
        # An onion service has no address here; the first worker serves the directory.
        serving = any(path.stem == "worker-0" for path in workers.living_workers(directory))
        return [*(LocalHost(name, "", name, serving) for name, _ in named), _tor(directory)]
    listening = await asyncio.gather(*(_listens(address) for _, address in named))
    return [
        LocalHost(name, address, plan.host_role(name), up) for (name, address), up in zip(named, listening, strict=True)
    ]


def _tor(directory: Path) -> LocalHost:
    from veilcast.net import tor_testnet

    found = tor_testnet.list_processes(tree.testnet_directory(directory))
    up = sum(part.pid is not None for part in found)
    return LocalHost("testnet", "", "tor", up == len(found), f"{up} of {pluralize(len(found), 'process')} up")


async def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), _CONNECT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


_CONNECT_S: Final = 10.0
"""Loopback answers or refuses at once; a machine that is busy may take seconds."""


def running_nodes(directory: Path, numbers: Collection[int]) -> list[int]:
    """Those of these nodes whose state a process holds."""
    return [number for number in numbers if is_directory_locked(node_directory(directory, number) / _STATE)]


def running_hosts(directory: Path, hosts: Sequence[str]) -> list[str]:
    return [host for host in hosts if is_directory_locked(host_directory(directory, host) / _STATE)]


def stop_hand_started(directory: Path, net: LocalNetwork, within_s: float) -> int:
    """Stop the nodes that still run after the workers have ended; how many there were.

    `StorageError` if something runs on: then its files must stay where they are.
    """
    running = running_nodes(directory, range(net.plan.nodes))
    for number in running:
        with contextlib.suppress(VeilcastError):  # A node that is just ending, or that does not answer: see below.
            asyncio.run(_stop(node_file(directory, number)))
    deadline = time.monotonic() + within_s
    while running_nodes(directory, running) and time.monotonic() < deadline:
        time.sleep(_STOP_LOOK_S)
    places = [node_directory(directory, number) for number in running_nodes(directory, running)]
    places += [host_directory(directory, host) for host in running_hosts(directory, net.plan.hosts)]
    if places:
        listed = ", ".join(map(str, places))
        raise StorageError(
            f"{listed}: started by hand, and still running; stop it and call again; the network's files stay"
        )
    return len(running)


def check_none_hand_started(directory: Path, nodes: Collection[int], hosts: Sequence[str]) -> None:
    """Raise `LocalError` if a person has started one of these by hand: a worker could not serve it then."""
    for number in running_nodes(directory, nodes):
        file = node_file(directory, number)
        raise LocalError(f"{file.parent} was started by hand; stop it first: {command_name()} node stop -c {file}")
    for host in running_hosts(directory, hosts):
        raise LocalError(f"{host_directory(directory, host)} was started by hand; stop it first")


async def _stop(file: Path) -> None:
    client = await open_client(file)
    try:
        await client.stop()
    finally:
        await client.close()


_STATE: Final = "state"
_STOP_LOOK_S: Final = 0.05


async def ask_statuses(directory: Path, net: LocalNetwork) -> list[Status | None]:
    """How each node is; None for one that does not answer."""
    return list(await asyncio.gather(*(_ask_status(node_file(directory, node)) for node in range(net.plan.nodes))))


async def wait_until_linked(
    directory: Path,
    net: LocalNetwork,
    crew: WorkerGroup,
    within_s: float,
    told: Callable[[int], object],
    stopped: Collection[int] = (),
) -> None:
    """Wait until every node but the stopped ones has found others, telling how many have, while the workers live."""
    async with asyncio.timeout(within_s):
        while True:
            crew.check()
            found = await ask_statuses(directory, net)
            linked = sum(status is not None and _has_found(status, net) for status in found)
            told(linked)
            if linked >= net.plan.nodes - len(stopped):
                return
            await asyncio.sleep(_LOOK_S)


async def subscribe_all(directory: Path, net: LocalNetwork, stopped: Collection[int] = ()) -> None:
    """Let each subscriber's node collect what comes, until a client reads it; not the nodes that are stopped."""
    for number in net.nodes_with_role("subscriber"):
        if number in stopped:
            continue
        client = await open_client(node_file(directory, number))
        try:
            await client.subscribe(net.topic, keep=True).start()
        finally:
            await client.close()


def _has_found(status: Status, net: LocalNetwork) -> bool:
    """In a tree streams come and go; who has the listing of all can call them when there is something to say."""
    if net.plan.mode == "brokers":
        return not status.hindrances
    return status.members >= net.plan.nodes if net.plan.mode == "tree" else status.neighbours > 0


async def _ask_status(config: Path) -> Status | None:
    try:
        client = await open_client(config)
    except (UnreachableError, LocalError):
        return None
    try:
        return await client.status()
    except UnreachableError:
        return None
    finally:
        await client.close()


_LOOK_S: Final = 0.2
