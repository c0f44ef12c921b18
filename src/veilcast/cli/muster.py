"""Asking all nodes of a local network at once, each through its own control socket, as any program would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from veilcast.cli.crew import Crew
from veilcast.cli.localnet import Net, node_file
from veilcast.errors import LocalError, UnreachableError
from veilcast.net.agent import Status
from veilcast.net.client import open_client


async def statuses(directory: Path, net: Net) -> list[Status | None]:
    """How each node is; None for one that does not answer."""
    return list(await asyncio.gather(*(_status(node_file(directory, node)) for node in range(net.plan.nodes))))


async def until_linked(
    directory: Path,
    net: Net,
    crew: Crew,
    within_s: float,
    told: Callable[[int], object],
    stopped: Collection[int] = (),
) -> None:
    """Wait until every node but the stopped ones has found others, telling how many have, while the workers live."""
    async with asyncio.timeout(within_s):
        while True:
            crew.check()
            found = await statuses(directory, net)
            linked = sum(status is not None and _has_found(status, net) for status in found)
            told(linked)
            if linked >= net.plan.nodes - len(stopped):
                return
            await asyncio.sleep(_LOOK_S)


async def subscribe_all(directory: Path, net: Net, stopped: Collection[int] = ()) -> None:
    """Let each subscriber's node collect what comes, until a client reads it; not the nodes that are stopped."""
    for number in net.having("subscriber"):
        if number in stopped:
            continue
        client = await open_client(node_file(directory, number))
        try:
            await client.subscribe(net.topic, keep=True).start()
        finally:
            await client.close()


def _has_found(status: Status, net: Net) -> bool:
    """In a tree streams come and go; who has the listing of all can call them when there is something to say."""
    if net.plan.mode == "brokers":
        return not status.hindrances
    return status.members >= net.plan.nodes if net.plan.mode == "tree" else status.neighbours > 0


async def _status(config: Path) -> Status | None:
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
