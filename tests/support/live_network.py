"""A live network: its hosts and members run as in service, all on one event loop.

The network is laid out as `veilcast net up` does it. A test can end and restart each host and member, in order or by
force; their files stay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from support.waits import pause
from veilcast.authority.secret_file import read_private_file
from veilcast.cli.context import Context
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, NodeRole, lay_out, node_file
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.net.client import Client, open_client
from veilcast.net.control_protocol import Status
from veilcast.net.service import ServiceSetup, serve_until
from veilcast.node import config as node_config
from veilcast.node.config import NodeConfig


class LiveNetwork:
    def __init__(self, directory: Path, plan: NetworkPlan, hasty: str = "") -> None:
        """`hasty` is added to the files of all members: settings without the delays that only hide a member."""
        self.directory = directory
        self.net: LocalNetwork = lay_out(directory, plan, Context(cost=PassphraseCost(1, 1)), Random(os.urandom(8)))
        for number in range(plan.nodes):
            with node_file(directory, number).open("a") as file:
                file.write(hasty)
        self._running: dict[str, tuple[asyncio.Task[bool], asyncio.Event]] = {}

    @property
    def publisher(self) -> str:
        """The publisher; all members are named by their directories."""
        return self._named("publisher")[0]

    @property
    def subscribers(self) -> list[str]:
        return self._named("subscriber")

    @property
    def others(self) -> list[str]:
        """Members that neither publish nor subscribe."""
        return self._named("forwarder")

    def names(self) -> list[str]:
        """All names, the hosts first."""
        return [*self.net.plan.hosts, self.publisher, *self.subscribers, *self.others]

    def file(self, name: str) -> Path:
        return self.directory / name / (f"{name}.toml" if name in self.net.plan.hosts else "node.toml")

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[Client]:
        me = await open_client(self.file(name))
        try:
            yield me
        finally:
            await me.close()

    async def subscribe(self, name: str) -> None:
        """Subscribe durably for a member; returns when the network has accepted it."""
        async with self.client(name) as me:
            await me.subscribe(self.net.topic, keep=True).ready()

    async def publish(self, *bodies: str) -> None:
        """Returns when all publications are confirmed."""
        async with self.client(self.publisher) as me:
            for body in bodies:
                await me.publish(self.net.topic, body)
            await wait_for_status(me, lambda status: not status.outbox)

    async def read(self, name: str, count: int) -> list[str]:
        async with self.client(name) as me:
            subscription = me.subscribe(self.net.topic, keep=True)
            notes = [await anext(subscription) for _ in range(count)]
            await subscription.acknowledge()
            return sorted(note.publication.body.decode() for note in notes)

    async def start(self, *names: str) -> None:
        """Start hosts or members on this event loop; returns when all are up."""
        for name in names:
            ready, stop = asyncio.Event(), asyncio.Event()
            task = asyncio.create_task(self._serve(name, stop, ready))
            self._running[name] = (task, stop)
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if task.done():
                task.result()

    async def stop(self, *names: str) -> None:
        """Stop in order, as a signal would."""
        for name in names:
            task, stop = self._running.pop(name)
            stop.set()
            await task

    async def cancel(self, name: str) -> None:
        """Stop at once, in the middle of any work."""
        task, _ = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def end(self) -> None:
        await self.stop(*self._running)

    def service(self, name: str) -> AbstractContextManager[ServiceSetup[Any]]:
        """The service of a host or member, ready to run."""
        raise NotImplementedError

    def member(self, name: str) -> tuple[NodeConfig, Secret]:
        """The configuration and passphrase of a member's node."""
        config = node_config.load_config(self.file(name))
        assert config.passphrase_file is not None
        return config, Secret(read_private_file(Path(config.passphrase_file)))

    def _named(self, role: NodeRole) -> list[str]:
        return [node_file(self.directory, number).parent.name for number in self.net.nodes_with_role(role)]

    async def _serve(self, name: str, stop: asyncio.Event, ready: asyncio.Event) -> bool:
        with ExitStack() as parts:
            return await serve_until(parts.enter_context(self.service(name)), stop, stop, lambda _: ready.set())


async def wait_for_status(me: Client, true: Callable[[Status], bool]) -> Status:
    """Ask for the node's status until the condition holds."""
    while not true(status := await me.status()):
        await pause()
    return status
