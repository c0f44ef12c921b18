"""The parts of a local network that a person started by hand: they run, and none of the network's workers serves them.

A member or host holds a lock on its state directory for as long as it runs. After all workers have ended, a state that
is still locked belongs to a process started by hand. Such a node can be asked to stop by its control socket; a server,
proxy, directory or broker has none, so its owner must end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from veilcast.authority.vault import is_held
from veilcast.cli.invocation import command_name
from veilcast.cli.localnet import Net, host_directory, node_directory, node_file
from veilcast.errors import LocalError, StorageError, VeilcastError
from veilcast.net.client import open_client


def nodes_running(directory: Path, numbers: Collection[int]) -> list[int]:
    """Those of these nodes whose state a process holds."""
    return [number for number in numbers if is_held(node_directory(directory, number) / _STATE)]


def hosts_running(directory: Path, hosts: Sequence[str]) -> list[str]:
    return [host for host in hosts if is_held(host_directory(directory, host) / _STATE)]


def stop_nodes(directory: Path, net: Net, within_s: float) -> int:
    """Stop the nodes that still run after the workers have ended; how many there were.

    `StorageError` if something runs on: then its files must stay where they are.
    """
    running = nodes_running(directory, range(net.plan.nodes))
    for number in running:
        with contextlib.suppress(VeilcastError):  # A node that is just ending, or that does not answer: see below.
            asyncio.run(_stop(node_file(directory, number)))
    deadline = time.monotonic() + within_s
    while nodes_running(directory, running) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    places = [node_directory(directory, number) for number in nodes_running(directory, running)]
    places += [host_directory(directory, host) for host in hosts_running(directory, net.plan.hosts)]
    if places:
        listed = ", ".join(map(str, places))
        raise StorageError(
            f"{listed}: started by hand, and still running; stop it and call again; the network's files stay"
        )
    return len(running)


def check_none(directory: Path, nodes: Collection[int], hosts: Sequence[str]) -> None:
    """Raise `LocalError` if a person has started one of these by hand: a worker could not serve it then."""
    for number in nodes_running(directory, nodes):
        file = node_file(directory, number)
        raise LocalError(f"{file.parent} was started by hand; stop it first: {command_name()} node stop -c {file}")
    for host in hosts_running(directory, hosts):
        raise LocalError(f"{host_directory(directory, host)} was started by hand; stop it first")


async def _stop(file: Path) -> None:
    client = await open_client(file)
    try:
        await client.stop()
    finally:
        await client.close()


_STATE: Final = "state"
_LOOK_S: Final = 0.05
