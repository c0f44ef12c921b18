"""The nodes and hosts of a local network as they run: their status, each asked through its own control socket, as any
program would; and processes that a person started by hand.

A member or host locks its state directory while it runs. After all workers have ended, a state that is still locked
belongs to a process started by hand. Such a node can be asked to stop by its control socket; a server, proxy, directory
or broker has none, so its owner must end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from veilcast.authority.secret_file import is_directory_locked
from veilcast.cli.invocation import command_name
from veilcast.cli.local.network import LocalNetwork, host_directory, node_directory, node_file
from veilcast.cli.local.workers import WorkerGroup
from veilcast.errors import LocalError, StorageError, UnreachableError, VeilcastError
from veilcast.net.client import open_client
from veilcast.net.control_protocol import Status


async def ask_statuses(directory: Path, network: LocalNetwork) -> list[Status | None]:
    """Ask all nodes at once; None for a node that does not answer."""
    return list(await asyncio.gather(*(_ask_status(node_file(directory, node)) for node in range(network.plan.nodes))))


async def wait_until_linked(
    directory: Path,
    network: LocalNetwork,
    workers: WorkerGroup,
    within_s: float,
    on_progress: Callable[[int], object],
    stopped: Collection[int] = (),
) -> None:
    """Wait until every node except the stopped ones has found others, while the workers live. `on_progress` receives
    how many have."""
    local = network.plan.local
    async with asyncio.timeout(within_s):
        while True:
            workers.check()
            found = await ask_statuses(directory, network)
            linked = sum(status is not None and local.is_linked(status, network) for status in found)
            on_progress(linked)
            if linked >= network.plan.nodes - len(stopped):
                return
            await asyncio.sleep(_LOOK_S)


async def subscribe_all(directory: Path, network: LocalNetwork, stopped: Collection[int] = ()) -> None:
    """Let each subscriber's node collect notes until a client reads them; stopped nodes are left out."""
    for number in network.nodes_with_role("subscriber"):
        if number in stopped:
            continue
        client = await open_client(node_file(directory, number))
        try:
            await client.subscribe(network.topic, keep=True).start()
        finally:
            await client.close()


def running_nodes(directory: Path, numbers: Collection[int]) -> list[int]:
    """Those of these nodes whose state a process has locked."""
    return [number for number in numbers if is_directory_locked(node_directory(directory, number) / _STATE)]


def running_hosts(directory: Path, hosts: Sequence[str]) -> list[str]:
    return [host for host in hosts if is_directory_locked(host_directory(directory, host) / _STATE)]


def stop_hand_started(directory: Path, network: LocalNetwork, within_s: float) -> int:
    """Stop the nodes that still run after the workers have ended; returns their number.

    Raises `StorageError` if something runs on: then its files must stay where they are.
    """
    running = running_nodes(directory, range(network.plan.nodes))
    for number in running:
        with contextlib.suppress(VeilcastError):  # A node that is just ending, or that does not answer: see below.
            asyncio.run(_stop(node_file(directory, number)))
    deadline = time.monotonic() + within_s
    while running_nodes(directory, running) and time.monotonic() < deadline:
        time.sleep(_STOP_LOOK_S)
    places = [node_directory(directory, number) for number in running_nodes(directory, running)]
    places += [host_directory(directory, host) for host in running_hosts(directory, network.plan.hosts)]
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


async def _stop(file: Path) -> None:
    client = await open_client(file)
    try:
        await client.stop()
    finally:
        await client.close()


_STATE: Final = "state"
_LOOK_S: Final = 0.2
_STOP_LOOK_S: Final = 0.05
