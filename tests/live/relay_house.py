"""A relay in a house: server, proxy and members as they are in service, on one event loop, or any of them in a process.

All is laid out as `veilcast net up --mode relay` does it. Whatever runs here can be ended and started again, in order
or by force, as often as a test likes; its files stay.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from veilcast.authority.vault import read_private
from veilcast.cli import ways
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.localnet import Net, NodeRole, Plan, lay_out, node_file
from veilcast.cli.localrelay import HOSTS, composed
from veilcast.cli.main import main
from veilcast.crypto.passphrase import Cost
from veilcast.crypto.secret import Secret
from veilcast.net.agent import Status
from veilcast.net.client import Client, open_client
from veilcast.net.limits import Limits
from veilcast.net.service import Station, attend
from veilcast.node import config as node_config
from veilcast.node.ledger import Ledger


class House:
    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory
        self.net: Net = lay_out(directory, plan, Context(cost=Cost(1, 1)), Random(os.urandom(8)))
        for number in range(plan.nodes):
            with node_file(directory, number).open("a") as file:
                file.write(_HASTY)
        self._running: dict[str, tuple[asyncio.Task[bool], asyncio.Event]] = {}
        self._children: dict[str, BaseProcess] = {}

    @property
    def publisher(self) -> str:
        """By the name of its directory, as all members."""
        return self._named("publisher")[0]

    @property
    def readers(self) -> list[str]:
        return self._named("subscriber")

    def names(self) -> list[str]:
        """All there are, the hosts first."""
        return [*HOSTS, self.publisher, *self.readers]

    def file(self, name: str) -> Path:
        return self.directory / name / (f"{name}.toml" if name in HOSTS else "node.toml")

    def change(self, name: str, old: str, new: str) -> None:
        """Change a word of one file."""
        text = self.file(name).read_text()
        assert old in text
        self.file(name).write_text(text.replace(old, new))

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[Client]:
        me = await open_client(self.file(name))
        try:
            yield me
        finally:
            await me.close()

    async def subscribe(self, name: str) -> None:
        """Let a reader's node collect; returns when the relay has taken it on."""
        async with self.client(name) as me:
            await me.subscribe(self.net.topic, keep=True).start()
            await until(me, lambda status: not status.waiting)

    async def publish(self, *bodies: str) -> None:
        """Returns when all of them are with the server, for good."""
        async with self.client(self.publisher) as me:
            for body in bodies:
                await me.publish(self.net.topic, body)
            await until(me, lambda status: not status.outbox)

    async def read(self, name: str, count: int) -> list[str]:
        async with self.client(name) as me:
            subscription = me.subscribe(self.net.topic, keep=True)
            notes = [await anext(subscription) for _ in range(count)]
            await subscription.acknowledge()
            return sorted(note.publication.body.decode() for note in notes)

    async def start(self, *names: str) -> None:
        """On this event loop; returns when all of them are up."""
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
        """In order, as a signal would."""
        for name in names:
            task, stop = self._running.pop(name)
            stop.set()
            await task

    async def spawn(self, name: str, *, forgetful: bool = False, room: int | None = None) -> None:
        """One of the hosts in a process of its own; returns when it listens. A planted bug makes its disk forget; or
        no file of its has room for more than so many bytes."""
        heard, said = _PROCESSES.Pipe(duplex=False)
        child = self._children[name] = _PROCESSES.Process(
            target=run_host, args=(name, self.file(name), said, forgetful, room, self.errors(name))
        )
        child.start()
        said.close()
        line = await asyncio.to_thread(heard.recv)
        assert line.startswith("listening at"), line
        heard.close()

    def errors(self, name: str) -> Path:
        """What a host in a process of its own has printed as it ended."""
        return self.file(name).with_suffix(".errors")

    def ended(self, name: str) -> int | None:
        """The exit code of a host that has ended by itself; None of one that lives."""
        code = self._children[name].exitcode
        if code is not None:
            del self._children[name]
        return code

    def kill(self, name: str) -> None:
        child = self._children.pop(name)
        child.kill()
        child.join()

    async def end(self) -> None:
        for name in list(self._children):
            self.kill(name)
        await self.stop(*self._running)

    def _named(self, role: NodeRole) -> list[str]:
        return [node_file(self.directory, number).parent.name for number in self.net.having(role)]

    async def _serve(self, name: str, stop: asyncio.Event, ready: asyncio.Event) -> bool:
        with ExitStack() as parts:
            return await attend(self._station(name, parts), stop, stop, lambda _: ready.set())

    def _station(self, name: str, parts: ExitStack) -> Station[Any]:
        for host in HOSTS:
            if name == host:
                return parts.enter_context(composed(self.directory, host))
        config = node_config.load(self.file(name))
        assert config.passphrase_file is not None
        secret = Secret(read_private(Path(config.passphrase_file)))
        return parts.enter_context(compose(config, secret))


def run_host(name: str, file: Path, said: Connection, forgetful: bool, room: int | None, errors: Path) -> None:
    """The command that runs a host, in a process that has been forked from one which had all imported."""
    if forgetful:
        Ledger.write = lambda *_: None  # type: ignore[method-assign]

    def say(line: str) -> None:
        """It listens, and has loaded all that it needs."""
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        said.send(line)

    sys.stderr = errors.open("w", buffering=1)
    sys.exit(main(["relay", name, "run", "-c", str(file)], Context(say=say)))


def in_house(directory: Path, plan: Plan, test: Callable[[House], Awaitable[None]], within_s: float = 30.0) -> None:
    """Lay out a relay, and run a test in it. Who has lost a host calls it again soon; in service it waits longer."""

    async def run() -> None:
        house = House(directory, plan)
        try:
            async with asyncio.timeout(within_s):
                with patch.object(ways, "Limits", partial(Limits, backoff_max_s=0.5)):
                    await test(house)
        finally:
            await house.end()

    asyncio.run(run())


async def until(me: Client, true: Callable[[Status], bool]) -> Status:
    """Ask again and again how the node is, until this is true of it."""
    while not true(status := await me.status()):
        await asyncio.sleep(0.001)
    return status


_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["veilcast.cli.main"])
_HASTY = "spread_us = 10000\nretry_us = 500000\n"
"""In the table `relay`, which comes last in a member's file: tests do not wait for what hides a member among others."""
